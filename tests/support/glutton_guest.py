"""A guest that takes whatever it can get: time, memory, stack, output; as WAT.

`spin()` computes for ever, `allocate()` takes memory until it gets no more and then traps,
`touch()` the same and writes to it, `recurse()` never returns, `chatter(n)` writes n times 4 KiB to
standard output (0: for ever), `make-string(n)` and `make-bytes(n)` answer n of them, `take-string`
and `take-bytes` count what they are given, and `add(n)` is well-behaved.
"""

_MANY = """
 (func (export "make-{name}") (param "n" u32) (result {type})
  (canon lift (core func $i "make") (memory (core memory $i "memory"))))
 (func (export "take-{name}") (param "all" {type}) (result u32)
  (canon lift (core func $i "take") (memory (core memory $i "memory"))
   (realloc (core func $i "realloc"))))"""

GLUTTON = (
    """(component
 (import "wasi:io/error@0.2.0" (instance $io-error (export "error" (type $e (sub resource)))))
 (alias export $io-error "error" (type $error))
 (import "wasi:io/streams@0.2.0" (instance $streams
  (alias outer 1 $error (type $e')) (export "error" (type $e (eq $e')))
  (export "output-stream" (type $out (sub resource)))
  (type $f' (variant (case "last-operation-failed" (own $e)) (case "closed")))
  (export "stream-error" (type $f (eq $f')))
  (export "[method]output-stream.blocking-write-and-flush" (func (param "self" (borrow $out))
   (param "contents" (list u8)) (result (result (error $f)))))))
 (alias export $streams "output-stream" (type $out))
 (import "wasi:cli/stdout@0.2.0" (instance $stdout
  (alias outer 1 $out (type $out')) (export "output-stream" (type $o (eq $out')))
  (export "get-stdout" (func (result (own $o))))))
 (core module $libc (memory (export "memory") 1))
 (core instance $libc (instantiate $libc))
 (core func $stdout (canon lower (func $stdout "get-stdout")))
 (core func $write (canon lower (func $streams "[method]output-stream.blocking-write-and-flush")
  (memory (core memory $libc "memory"))))
 (core module $m
  (import "libc" "memory" (memory 1))
  (import "h" "stdout" (func $stdout (result i32)))
  (import "h" "write" (func $write (param i32 i32 i32 i32)))
  (export "memory" (memory 0))
  (global $sum (mut i32) (i32.const 0))
  (data (i32.const 8192) "chatter, chatter")
  (func $need (param $bytes i32) (local $more i32)
   (local.set $more (i32.sub (i32.add (i32.const 1)
    (i32.shr_u (i32.add (local.get $bytes) (i32.const 16384)) (i32.const 16))) (memory.size)))
   (if (i32.gt_s (local.get $more) (i32.const 0))
    (then (if (i32.eq (memory.grow (local.get $more)) (i32.const -1)) (then (unreachable))))))
  (func (export "realloc") (param i32 i32 i32 i32) (result i32)
   (call $need (local.get 3)) (i32.const 16384))
  (func (export "spin") (result i32) (loop $again (br $again)) (i32.const 0))
  (func (export "allocate") (result i32)
   (loop $again (if (i32.eq (memory.grow (i32.const 16)) (i32.const -1)) (then (unreachable)))
    (br $again)) (i32.const 0))
  (func (export "touch") (result i32) (local $at i32)
   (loop $again
    (local.set $at (i32.shl (memory.size) (i32.const 16)))
    (if (i32.eq (memory.grow (i32.const 16)) (i32.const -1)) (then (unreachable)))
    (memory.fill (local.get $at) (i32.const 1) (i32.const 1048576))
    (br $again)) (i32.const 0))
  (func $recurse (export "recurse") (result i32) (i32.add (i32.const 1) (call $recurse)))
  (func (export "chatter") (param $n i32) (result i32) (local $out i32)
   (local.set $out (call $stdout))
   (loop $again
    (call $write (local.get $out) (i32.const 8192) (i32.const 4096) (i32.const 64))
    (if (i32.load8_u (i32.const 64)) (then (unreachable)))
    (local.set $n (i32.sub (local.get $n) (i32.const 1)))
    (br_if $again (local.get $n)))
   (i32.const 1))
  (func (export "make") (param i32) (result i32) (call $need (local.get 0))
   (i32.store (i32.const 0) (i32.const 16384)) (i32.store (i32.const 4) (local.get 0))
   (i32.const 0))
  (func (export "take") (param i32 i32) (result i32) (local.get 1))
  (func (export "add") (param i32) (result i32)
   (global.set $sum (i32.add (global.get $sum) (local.get 0))) (global.get $sum)))
 (core instance $i (instantiate $m (with "libc" (instance $libc)) (with "h" (instance
  (export "stdout" (func $stdout)) (export "write" (func $write))))))
"""
    + "".join(
        f'(func (export "{name}") (result u32) (canon lift (core func $i "{name}")))'
        for name in ("spin", "allocate", "touch", "recurse")
    )
    + "".join(
        f'(func (export "{name}") (param "n" u32) (result u32)'
        f' (canon lift (core func $i "{name}")))'
        for name in ("chatter", "add")
    )
    + _MANY.format(name="string", type="string")
    + _MANY.format(name="bytes", type="(list u8)")
    + ")"
)

LATE_RISER = """(component
 (core module $m (func $start (loop $again (br $again))) (start $start)
  (func (export "get") (result i32) (i32.const 1)))
 (core instance $i (instantiate $m))
 (func (export "get") (result u32) (canon lift (core func $i "get"))))"""
"""Computes for ever while it is instantiated."""
