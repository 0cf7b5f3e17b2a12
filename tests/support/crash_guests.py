"""The guests of the crash tests that no other test needs, in WAT."""

from typing import Final

TALKER: Final = b"""
(component
  (import "wasi:io/error@0.2.0" (instance $error (export "error" (type (sub resource)))))
  (alias export $error "error" (type $error-type))
  (import "wasi:io/streams@0.2.0" (instance $streams
    (export "output-stream" (type $stream (sub resource)))
    (alias outer 1 $error-type (type $outer))
    (export "error" (type $failure (eq $outer)))
    (type $stream-error' (variant (case "last-operation-failed" (own $failure)) (case "closed")))
    (export "stream-error" (type $stream-error (eq $stream-error')))
    (export "[method]output-stream.blocking-write-and-flush"
      (func (param "self" (borrow $stream)) (param "contents" (list u8))
        (result (result (error $stream-error)))))))
  (alias export $streams "output-stream" (type $stream))
  (import "wasi:cli/stdout@0.2.0" (instance $stdout
    (alias outer 1 $stream (type $outer))
    (export "output-stream" (type $stream (eq $outer)))
    (export "get-stdout" (func (result (own $stream))))))
  (core module $Memory (memory (export "memory") 1) (data (i32.const 16) "said\\0a"))
  (core instance $memory (instantiate $Memory))
  (alias core export $memory "memory" (core memory $mem))
  (core func $get (canon lower (func $stdout "get-stdout")))
  (core func $write (canon lower
    (func $streams "[method]output-stream.blocking-write-and-flush") (memory $mem)))
  (core func $drop (canon resource.drop $stream))
  (core module $Main
    (import "host" "get" (func $get (result i32)))
    (import "host" "write" (func $write (param i32 i32 i32 i32)))
    (import "host" "drop" (func $drop (param i32)))
    (global $count (mut i32) (i32.const 0))
    (func (export "say") (param $turns i32) (result i32)
      (local $stream i32)
      (local.set $stream (call $get))
      (call $write (local.get $stream) (i32.const 16) (i32.const 5) (i32.const 32))
      (call $drop (local.get $stream))
      (block $done
        (loop $next
          (br_if $done (i32.eqz (local.get $turns)))
          (local.set $turns (i32.sub (local.get $turns) (i32.const 1)))
          (br $next)))
      (global.set $count (i32.add (global.get $count) (i32.const 1)))
      (global.get $count)))
  (core instance $main (instantiate $Main
    (with "host" (instance
      (export "get" (func $get))
      (export "write" (func $write))
      (export "drop" (func $drop))))))
  (func $say (param "turns" u32) (result u32) (canon lift (core func $main "say")))
  (instance $api (export "say" (func $say)))
  (export "demo:talker/api" (instance $api)))
"""
"""`say: func(turns: u32) -> u32`: prints, then computes; how often it did."""

EXITER: Final = b"""
(component
  (import "demo:bank/api" (instance $bank
    (export "charge" (func (param "who" string) (param "cents" u64)
      (result (result string (error string)))))))
  (import "wasi:cli/exit@0.2.0" (instance $exit
    (export "exit" (func (param "status" (result))))))
  (core module $Memory
    (memory (export "memory") 1)
    (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024)))
  (core instance $memory (instantiate $Memory))
  (alias core export $memory "memory" (core memory $mem))
  (alias core export $memory "cabi_realloc" (core func $realloc))
  (core func $charge (canon lower (func $bank "charge")
    (memory $mem) (realloc $realloc) string-encoding=utf8))
  (core func $leave (canon lower (func $exit "exit")))
  (core module $Main
    (import "bank" "charge" (func $charge (param i32 i32 i64 i32)))
    (import "exit" "exit" (func $exit (param i32)))
    (global $count (mut i32) (i32.const 0))
    (func (export "add") (param $n i32) (result i32)
      (global.set $count (i32.add (global.get $count) (local.get $n)))
      (global.get $count))
    (func (export "leave")
      (call $charge (i32.const 16) (i32.const 0) (i64.const 7) (i32.const 32))
      (call $exit (i32.const 1))))
  (core instance $main (instantiate $Main
    (with "bank" (instance (export "charge" (func $charge))))
    (with "exit" (instance (export "exit" (func $leave))))))
  (func $add (param "n" u32) (result u32) (canon lift (core func $main "add")))
  (func $leave-now (canon lift (core func $main "leave")))
  (instance $api (export "add" (func $add)) (export "leave" (func $leave-now)))
  (export "demo:exiter/api" (instance $api)))
"""
"""`add: func(n: u32) -> u32`; `leave: func()` charges 7 cents and exits with an error."""
