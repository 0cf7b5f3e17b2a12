"""The guests of the benches, in WAT: loops around one host call, and little else."""

from typing import Final

STEPS: Final = b"""
(component
  (import "bench:steps/api" (instance $api
    (export "tick" (func (param "x" u32) (result u32)))))
  (core func $tick (canon lower (func $api "tick")))
  (core module $Main
    (import "host" "tick" (func $tick (param i32) (result i32)))
    (memory (export "memory") 1)
    (func (export "ticks") (param $n i32) (result i64)
      (local $sum i64)
      (block $done
        (loop $next
          (br_if $done (i32.eqz (local.get $n)))
          (local.set $sum
            (i64.add (local.get $sum) (i64.extend_i32_u (call $tick (local.get $n)))))
          (local.set $n (i32.sub (local.get $n) (i32.const 1)))
          (br $next)))
      (local.get $sum)))
  (core instance $main (instantiate $Main
    (with "host" (instance (export "tick" (func $tick))))))
  (func (export "ticks") (param "n" u32) (result u64) (canon lift (core func $main "ticks"))))
"""
"""`ticks: func(n: u32) -> u64`: n remote writes, one after another; the sum of the answers."""

CALLS: Final = b"""
(component
  (import "bench:calls/api" (instance $api
    (export "number" (func (param "x" u32) (result u32)))
    (export "text" (func (param "s" string) (result string)))))
  (import "wasi:clocks/wall-clock@0.2.0" (instance $wall
    (type $datetime' (record (field "seconds" u64) (field "nanoseconds" u32)))
    (export "datetime" (type $datetime (eq $datetime')))
    (export "now" (func (result $datetime)))))
  (import "wasi:random/random@0.2.0" (instance $random
    (export "get-random-u64" (func (result u64)))))
  (core module $Memory
    (memory (export "memory") 1)
    (data (i32.const 16) "customer-0123456789")
    (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024)))
  (core instance $memory (instantiate $Memory))
  (alias core export $memory "memory" (core memory $mem))
  (alias core export $memory "cabi_realloc" (core func $realloc))
  (core func $number (canon lower (func $api "number")))
  (core func $text (canon lower (func $api "text")
    (memory $mem) (realloc $realloc) string-encoding=utf8))
  (core func $now (canon lower (func $wall "now") (memory $mem)))
  (core func $random-u64 (canon lower (func $random "get-random-u64")))
  (core module $Main
    (import "host" "number" (func $number (param i32) (result i32)))
    (import "host" "text" (func $text (param i32 i32 i32)))
    (import "host" "now" (func $now (param i32)))
    (import "host" "random" (func $random (result i64)))
    (func (export "number") (param $n i32) (result i64)
      (block $done (loop $next
        (br_if $done (i32.eqz (local.get $n)))
        (drop (call $number (local.get $n)))
        (local.set $n (i32.sub (local.get $n) (i32.const 1)))
        (br $next)))
      (i64.const 0))
    (func (export "text") (param $n i32) (result i64)
      (block $done (loop $next
        (br_if $done (i32.eqz (local.get $n)))
        (call $text (i32.const 16) (i32.const 19) (i32.const 64))
        (local.set $n (i32.sub (local.get $n) (i32.const 1)))
        (br $next)))
      (i64.const 0))
    (func (export "moment") (param $n i32) (result i64)
      (block $done (loop $next
        (br_if $done (i32.eqz (local.get $n)))
        (call $now (i32.const 64))
        (local.set $n (i32.sub (local.get $n) (i32.const 1)))
        (br $next)))
      (i64.const 0))
    (func (export "random") (param $n i32) (result i64)
      (block $done (loop $next
        (br_if $done (i32.eqz (local.get $n)))
        (drop (call $random))
        (local.set $n (i32.sub (local.get $n) (i32.const 1)))
        (br $next)))
      (i64.const 0)))
  (core instance $main (instantiate $Main
    (with "host" (instance
      (export "number" (func $number))
      (export "text" (func $text))
      (export "now" (func $now))
      (export "random" (func $random-u64))))))
  (func (export "number") (param "n" u32) (result u64) (canon lift (core func $main "number")))
  (func (export "text") (param "n" u32) (result u64) (canon lift (core func $main "text")))
  (func (export "moment") (param "n" u32) (result u64) (canon lift (core func $main "moment")))
  (func (export "random") (param "n" u32) (result u64) (canon lift (core func $main "random"))))
"""
"""Four loops of n host calls: u32 to u32, a string of 19 bytes to itself, the wall clock's record,
a random u64."""

SIGNATURES: Final = {
    "number": "u32",
    "text": "string",
    "moment": "record",
    "random": "u64 from random",
}
"""Export of `CALLS` to what crosses."""

RANDOM: Final = b"""
(component
  (import "wasi:random/random@0.2.0" (instance $random
    (export "get-random-u64" (func (result u64)))))
  (core func $random-u64 (canon lower (func $random "get-random-u64")))
  (core module $Main
    (import "host" "random" (func $random (result i64)))
    (func (export "random") (param $n i32) (result i64)
      (local $sum i64)
      (block $done (loop $next
        (br_if $done (i32.eqz (local.get $n)))
        (local.set $sum (i64.xor (local.get $sum) (call $random)))
        (local.set $n (i32.sub (local.get $n) (i32.const 1)))
        (br $next)))
      (local.get $sum)))
  (core instance $main (instantiate $Main
    (with "host" (instance (export "random" (func $random-u64))))))
  (func (export "random") (param "n" u32) (result u64) (canon lift (core func $main "random"))))
"""
"""`random: func(n: u32) -> u64`: n random numbers, and all their bits together."""
