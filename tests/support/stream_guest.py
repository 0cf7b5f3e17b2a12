"""A guest that pumps bytes from one stream into another, as WAT; the two may be of two versions."""

_STREAMS = """
 (import "wasi:io/error@{v}" (instance $io-error{n} (export "error" (type $e (sub resource)))))
 (alias export $io-error{n} "error" (type $error{n}))
 (import "wasi:io/poll@{v}" (instance $poll{n} (export "pollable" (type $p (sub resource)))))
 (alias export $poll{n} "pollable" (type $pollable{n}))
 (import "wasi:io/streams@{v}" (instance $streams{n}
  (alias outer 1 $error{n} (type $e')) (export "error" (type $e (eq $e')))
  (alias outer 1 $pollable{n} (type $p')) (export "pollable" (type $p (eq $p')))
  (export "input-stream" (type $in (sub resource)))
  (export "output-stream" (type $out (sub resource)))
  (type $f' (variant (case "last-operation-failed" (own $e)) (case "closed")))
  (export "stream-error" (type $f (eq $f')))
  (export "[method]input-stream.read" (func (param "self" (borrow $in)) (param "len" u64)
   (result (result (list u8) (error $f)))))
  (export "[method]input-stream.blocking-read" (func (param "self" (borrow $in))
   (param "len" u64) (result (result (list u8) (error $f)))))
  (export "[method]input-stream.skip" (func (param "self" (borrow $in)) (param "len" u64)
   (result (result u64 (error $f)))))
  (export "[method]output-stream.check-write" (func (param "self" (borrow $out))
   (result (result u64 (error $f)))))
  (export "[method]output-stream.write" (func (param "self" (borrow $out))
   (param "contents" (list u8)) (result (result (error $f)))))
  (export "[method]output-stream.blocking-write-and-flush" (func (param "self" (borrow $out))
   (param "contents" (list u8)) (result (result (error $f)))))))
 (alias export $streams{n} "input-stream" (type $in{n}))
 (alias export $streams{n} "output-stream" (type $out{n}))"""

_CODE = """
 (import "t:host/api" (instance $api
  (alias outer 1 $in0 (type $in')) (export "input-stream" (type $in (eq $in')))
  (alias outer 1 $out1 (type $out')) (export "output-stream" (type $out (eq $out')))
  (export "source" (func (result (own $in)))) (export "sink" (func (result (own $out))))))
 (core module $libc (memory (export "memory") 40)
  (func (export "realloc") (param i32 i32 i32 i32) (result i32)
   (if (i32.or (local.get 0) (local.get 1)) (then (unreachable)))
   (if (i32.ne (local.get 2) (i32.const 1)) (then (unreachable)))
   (i32.const 1024)))
 (core instance $libc (instantiate $libc))
 (core func $source (canon lower (func $api "source")))
 (core func $sink (canon lower (func $api "sink")))
 (core func $drop-in (canon resource.drop $in0)) (core func $drop-out (canon resource.drop $out1))
 (core func $drop-error (canon resource.drop $error0))
 (core func $read (canon lower (func $streams0 "[method]input-stream.{read}")
  (memory (core memory $libc "memory")) (realloc (core func $libc "realloc"))))
 (core func $skip (canon lower (func $streams0 "[method]input-stream.skip")
  (memory (core memory $libc "memory"))))
 (core func $write (canon lower (func $streams1 "[method]output-stream.{write}")
  (memory (core memory $libc "memory"))))
 (core module $main
  (import "h" "source" (func $source (result i32))) (import "h" "sink" (func $sink (result i32)))
  (import "h" "drop-in" (func $drop-in (param i32)))
  (import "h" "drop-out" (func $drop-out (param i32)))
  (import "h" "drop-error" (func $drop-error (param i32)))
  (import "h" "read" (func $read (param i32 i64 i32)))
  (import "h" "skip" (func $skip (param i32 i64 i32)))
  (import "h" "write" (func $write (param i32 i32 i32 i32)))
  (import "libc" "memory" (memory 1))
  (func (export "pump") (param $rounds i32) (param $size i32) (result i64)
   (local $in i32) (local $out i32) (local $total i64)
   (local.set $in (call $source)) (local.set $out (call $sink))
   (block $end (loop $next (br_if $end (i32.eqz (local.get $rounds)))
    (call $read (local.get $in) (i64.extend_i32_u (local.get $size)) (i32.const 16))
    (br_if $end (i32.load8_u (i32.const 16)))
    (call $write (local.get $out) (i32.load (i32.const 20)) (i32.load (i32.const 24))
     (i32.const 32))
    (if (i32.load8_u (i32.const 32)) (then (unreachable)))
    (local.set $total (i64.add (local.get $total) (i64.load32_u (i32.const 24))))
    (local.set $rounds (i32.sub (local.get $rounds) (i32.const 1))) (br $next)))
   (if (i32.and (i32.load8_u (i32.const 16)) (i32.eqz (i32.load8_u (i32.const 20))))
    (then (call $drop-error (i32.load (i32.const 24)))))
   (call $drop-in (local.get $in)) (call $drop-out (local.get $out)) (local.get $total))
  (func (export "skips") (param $count i32) (param $size i32) (result i64) (local $in i32)
   (local.set $in (call $source))
   (call $skip (local.get $in) (i64.extend_i32_u (local.get $count)) (i32.const 16))
   (call $drop-in (local.get $in)) (i64.load (i32.const 24)))
  (func (export "writes") (param $from i32) (param $size i32) (result i64) (local $out i32)
   (local.set $out (call $sink))
   (call $write (local.get $out) (local.get $from) (local.get $size) (i32.const 32))
   (call $drop-out (local.get $out)) (i64.load8_u (i32.const 32))))
 (core instance $main (instantiate $main (with "libc" (instance $libc)) (with "h" (instance
  (export "source" (func $source)) (export "sink" (func $sink))
  (export "drop-in" (func $drop-in)) (export "drop-out" (func $drop-out))
  (export "drop-error" (func $drop-error))
  (export "read" (func $read)) (export "skip" (func $skip)) (export "write" (func $write))))))
 {exports}"""


def pump(
    *,
    from_version: str = "0.2.0",
    to_version: str = "0.2.9",
    read: str = "read",
    write: str = "write",
) -> str:
    """`pump: func(a: u32, b: u32) -> u64`: reads up to b bytes a times and writes them; the total.

    `skips(n, _)` skips n bytes, `writes(at, n)` writes n bytes of the memory: 1 for an error. The
    guest's `realloc` takes nothing but new blocks of one-byte alignment, as some adapters do.
    """
    exports = "".join(
        f'(func (export "{name}") (param "a" u32) (param "b" u32) (result u64)'
        f' (canon lift (core func $main "{name}")))'
        for name in ("pump", "skips", "writes")
    )
    first = _STREAMS.replace("{v}", from_version).replace("{n}", "0")
    second = _STREAMS.replace("{v}", to_version).replace("{n}", "1")
    code = _CODE.replace("{read}", read).replace("{write}", write).replace("{exports}", exports)
    return f"(component {first} {second} {code})"
