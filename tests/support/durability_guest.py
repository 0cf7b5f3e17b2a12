"""A guest whose library makes durable functions of its own blocks, by golem:durability.

`charge: func(n: u32, zone: bool) -> u64` is one durable function of type write-remote: where it is
live its block writes n and then n + 1 at the peer, in a zone that persists nothing if asked, and
persists the sum of the answers; else it reads what was persisted. It answers the total of all that
was charged. `mode: func(on: bool)` sets idempotence mode.
"""

from typing import Final

from tests.support.wat_guests import MEMORY

CUSTOM: Final = (
    b"""
(component
  (import "demo:rules/peer" (instance $peer
    (export "write" (func (param "step" u32) (result u32)))))
  (import "golem:api/host@1.1.6" (instance $host
    (type $level' (variant
      (case "persist-nothing") (case "persist-remote-side-effects") (case "smart")))
    (export "persistence-level" (type $level (eq $level')))
    (export "set-idempotence-mode" (func (param "idempotent" bool)))
    (export "set-oplog-persistence-level" (func (param "new-persistence-level" $level)))))
  (alias export $host "persistence-level" (type $level))
  (import "wasi:clocks/wall-clock@0.2.0" (instance $clock
    (type $datetime' (record (field "seconds" u64) (field "nanoseconds" u32)))
    (export "datetime" (type $datetime (eq $datetime')))))
  (alias export $clock "datetime" (type $datetime))
  (import "golem:durability/durability@1.2.0" (instance $durability
    (type $type' (variant (case "read-local") (case "write-local") (case "read-remote")
      (case "write-remote") (case "write-remote-batched" (option u64))))
    (export "durable-function-type" (type $type (eq $type')))
    (alias outer 1 $level (type $plevel))
    (alias outer 1 $datetime (type $at))
    (export "persistence-level" (type $pl (eq $plevel)))
    (type $state' (record (field "is-live" bool) (field "persistence-level" $pl)))
    (export "durable-execution-state" (type $state (eq $state')))
    (type $version' (enum "v1" "v2"))
    (export "oplog-entry-version" (type $version (eq $version')))
    (export "datetime" (type $dt (eq $at)))
    (type $persisted' (record (field "timestamp" $dt) (field "function-name" string)
      (field "response" (list u8)) (field "function-type" $type)
      (field "entry-version" $version)))
    (export "persisted-durable-function-invocation" (type $persisted (eq $persisted')))
    (export "begin-durable-function" (func (param "function-type" $type) (result u64)))
    (export "end-durable-function" (func (param "function-type" $type)
      (param "begin-index" u64) (param "forced-commit" bool)))
    (export "current-durable-execution-state" (func (result $state)))
    (export "persist-durable-function-invocation" (func (param "function-name" string)
      (param "request" (list u8)) (param "response" (list u8)) (param "function-type" $type)))
    (export "read-persisted-durable-function-invocation" (func (result $persisted)))))
"""
    + MEMORY
    + b"""
  (core func $write (canon lower (func $peer "write")))
  (core func $set-mode (canon lower (func $host "set-idempotence-mode")))
  (core func $set-level (canon lower (func $host "set-oplog-persistence-level")))
  (core func $begin (canon lower (func $durability "begin-durable-function")))
  (core func $end (canon lower (func $durability "end-durable-function")))
  (core func $state (canon lower (func $durability "current-durable-execution-state")
    (memory $mem)))
  (core func $persist (canon lower (func $durability "persist-durable-function-invocation")
    (memory $mem) string-encoding=utf8))
  (core func $read (canon lower (func $durability "read-persisted-durable-function-invocation")
    (memory $mem) (realloc $realloc) string-encoding=utf8))
  (core module $Main
    (import "memory" "memory" (memory 1))
    (import "memory" "reset" (func $reset))
    (import "host" "write" (func $write (param i32) (result i32)))
    (import "host" "set-mode" (func $set-mode (param i32)))
    (import "host" "set-level" (func $set-level (param i32)))
    (import "host" "begin" (func $begin (param i32 i32 i64) (result i64)))
    (import "host" "end" (func $end (param i32 i32 i64 i64 i32)))
    (import "host" "state" (func $state (param i32)))
    (import "host" "persist" (func $persist
      (param i32 i32 i32 i32 i32 i32 i32 i32 i64)))
    (import "host" "read" (func $read (param i32)))
    (global $total (mut i64) (i64.const 0))
    (data (i32.const 64) "demo:charges/charge")
    (func (export "charge") (param $n i32) (param $zone i32) (result i64)
      (local $scope i64)
      (local $sum i32)
      (call $reset)
      (local.set $scope (call $begin (i32.const 3) (i32.const 0) (i64.const 0)))
      (call $state (i32.const 128))
      (if (i32.load8_u (i32.const 128))
        (then
          (if (local.get $zone) (then (call $set-level (i32.const 0))))
          (local.set $sum (i32.add
            (call $write (local.get $n))
            (call $write (i32.add (local.get $n) (i32.const 1)))))
          (if (local.get $zone) (then (call $set-level (i32.const 2))))
          (i32.store8 (i32.const 96) (local.get $n))
          (i32.store8 (i32.const 97) (local.get $sum))
          (call $persist (i32.const 64) (i32.const 19) (i32.const 96) (i32.const 1)
            (i32.const 97) (i32.const 1) (i32.const 3) (i32.const 0) (i64.const 0)))
        (else
          (call $read (i32.const 160))
          (local.set $sum (i32.load8_u (i32.load (i32.const 184))))))
      (call $end (i32.const 3) (i32.const 0) (i64.const 0) (local.get $scope) (i32.const 0))
      (global.set $total (i64.add (global.get $total) (i64.extend_i32_u (local.get $sum))))
      (global.get $total))
    (func (export "mode") (param $on i32) (call $set-mode (local.get $on))))
  (core instance $main (instantiate $Main
    (with "memory" (instance $memory))
    (with "host" (instance
      (export "write" (func $write)) (export "set-mode" (func $set-mode))
      (export "set-level" (func $set-level)) (export "begin" (func $begin))
      (export "end" (func $end)) (export "state" (func $state))
      (export "persist" (func $persist)) (export "read" (func $read))))))
  (func $charge (param "n" u32) (param "zone" bool) (result u64)
    (canon lift (core func $main "charge")))
  (func $mode (param "on" bool) (canon lift (core func $main "mode")))
  (instance $api (export "charge" (func $charge)) (export "mode" (func $mode)))
  (export "demo:charges/api" (instance $api)))
"""
)
