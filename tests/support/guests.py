"""The guests of the tests, as bytes to deploy: built ones (cached) and small ones in WAT.

| guest          | exports                                             | imports                |
|----------------|-----------------------------------------------------|------------------------|
| order (Python) | demo:orders/workflow: place, status, orders, ledger | demo:orders/bank, WASI |
| trip (JS)      | demo:trips/workflow: book, booked, totals           | demo:bank/api, WASI    |
| types (C)      | demo:types/echo: one function a type                | demo:types/mirror      |
| counter (C)    | demo:counter/api: add, get, charge-many, fail, spin | bank, clock, random    |
| printer (C)    | demo:printer/api: print, warn, write                | stdout and stderr      |
| command (C)    | wasi:cli/run: run                                   | wasi:cli               |
| scribe (C)     | demo:scribe/api: write, write-and-wait, link …      | files, a pollable      |
| poster (C)     | demo:poster/api: run                                | wasi:http, peer        |
| auditor (C)    | demo:auditor/api: entries, search                   | golem:api/oplog        |
| keeper (C)     | demo:keeper/api: count-up, put, look …              | key-value store, blobs |
| approval (C)   | demo:approval/workflow: request, create, await …    | promises, stdout       |
| courier (C)    | demo:courier/post: ask, dial, say, ping             | sockets, a pollable    |
| gather (Py)    | demo:gather/api: fetch-all, post-all                | wasi:http              |
| collector (JS) | demo:collector/api: fetch-all                       | wasi:http, by `fetch`  |
| fetcher (C)    | demo:fetcher/api: fetch-all, drain, pour            | wasi:http              |
| callback (C)   | demo:callback/api: ask, a resource `reading`        | durability, wasi:http  |
| adder (WAT)    | demo:adder/api: add, get, fail, spin                | none                   |
| charger (WAT)  | demo:charger/api: charge-many                       | demo:bank/api          |
| clocks (WAT)   | demo:clocks/api: read                               | clocks and random      |
| sleeper (WAT)  | demo:sleeper/api: sleep                             | monotonic clock, poll  |

`demo:bank/api` is `charge: func(who: string, cents: u64) -> result<string, string>`.
"""

from functools import cache
from typing import Final

import pytest

from guests import recipes


@cache
def order_component() -> bytes:
    """19 MB; the first build of its sources takes 5 to 10 s."""
    return recipes.build("order").read_bytes()


def trip_component() -> bytes:
    """1 MB; skips the test where Node.js or npm's registry is missing to build it with."""
    return built_or_skipped("trip")


def built_or_skipped(guest: str) -> bytes:
    match attempted(guest):
        case bytes() as component:
            return component
        case why_not:
            pytest.skip(why_not)


@cache
def attempted(guest: str) -> bytes | str:
    """The component, or why it cannot be built here: found out once in a test run."""
    try:
        return recipes.build(guest).read_bytes()
    except recipes.ToolMissingError as error:
        return str(error)


@cache
def types_component() -> bytes:
    return recipes.build("types").read_bytes()


@cache
def counter_component() -> bytes:
    return recipes.build("counter").read_bytes()


@cache
def command_component() -> bytes:
    return recipes.build("command").read_bytes()


@cache
def printer_component() -> bytes:
    return recipes.build("printer").read_bytes()


@cache
def gather_component() -> bytes:
    """19 MB; the first build of its sources takes 5 to 10 s."""
    return recipes.build("gather").read_bytes()


def collector_component() -> bytes:
    """12 MB; skips the test where nobody has built it: its tools are large."""
    if not (recipes.BUILD / "collector.wasm").exists():
        pytest.skip("`python guests/recipes.py collector` builds it; its tools take 400 MB")
    return built_or_skipped("collector")


@cache
def fetcher_component() -> bytes:
    return recipes.build("fetcher").read_bytes()


@cache
def poster_component() -> bytes:
    return recipes.build("poster").read_bytes()


@cache
def callback_component() -> bytes:
    return recipes.build("callback").read_bytes()


@cache
def scribe_component() -> bytes:
    return recipes.build("scribe").read_bytes()


@cache
def auditor_component() -> bytes:
    return recipes.build("auditor").read_bytes()


@cache
def keeper_component() -> bytes:
    return recipes.build("keeper").read_bytes()


@cache
def approval_component() -> bytes:
    return recipes.build("approval").read_bytes()


@cache
def courier_component() -> bytes:
    return recipes.build("courier").read_bytes()


ADDER: Final = b"""
(component
  (core module $Main
    (global $count (mut i32) (i32.const 0))
    (func (export "add") (param $n i32) (result i32)
      (global.set $count (i32.add (global.get $count) (local.get $n)))
      (global.get $count))
    (func (export "get") (result i32) (global.get $count))
    (func (export "fail") unreachable)
    (func (export "spin") (loop $turn (br $turn))))
  (core instance $main (instantiate $Main))
  (func $add (param "n" u32) (result u32) (canon lift (core func $main "add")))
  (func $get (result u32) (canon lift (core func $main "get")))
  (func $fail (canon lift (core func $main "fail")))
  (func $spin (canon lift (core func $main "spin")))
  (instance $api
    (export "add" (func $add)) (export "get" (func $get))
    (export "fail" (func $fail)) (export "spin" (func $spin)))
  (export "demo:adder/api" (instance $api)))
"""
"""`add: func(n: u32) -> u32` and `get: func() -> u32` over a count in memory; `fail` traps, `spin`
never returns."""

# Lowering an import needs a memory before the module that calls the import exists: this module.
_MEMORY: Final = b"""
  (core module $Memory
    (memory (export "memory") 1)
    (global $end (mut i32) (i32.const 1024))
    (func (export "reset") (global.set $end (i32.const 1024)))
    (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
      (local $start i32)
      (local.set $start
        (i32.and (i32.add (global.get $end) (i32.const 7)) (i32.const -8)))
      (global.set $end (i32.add (local.get $start) (local.get 3)))
      (if (i32.gt_u (global.get $end) (i32.const 65536)) (then unreachable))
      (local.get $start)))
  (core instance $memory (instantiate $Memory))
  (alias core export $memory "memory" (core memory $mem))
  (alias core export $memory "cabi_realloc" (core func $realloc))
"""

CHARGER: Final = (
    b"""
(component
  (import "demo:bank/api" (instance $bank
    (export "charge" (func (param "who" string) (param "cents" u64)
      (result (result string (error string)))))))
"""
    + _MEMORY
    + b"""
  (core func $charge (canon lower (func $bank "charge")
    (memory $mem) (realloc $realloc) string-encoding=utf8))
  (core module $Main
    (import "memory" "memory" (memory 1))
    (import "memory" "reset" (func $reset))
    (import "bank" "charge" (func $charge (param i32 i32 i64 i32)))
    (data (i32.const 16) "wat")
    (global $accepted (mut i32) (i32.const 0))
    (func (export "charge-many") (param $n i32) (result i32)
      (local $i i32)
      (block $done
        (loop $next
          (br_if $done (i32.ge_u (local.get $i) (local.get $n)))
          (local.set $i (i32.add (local.get $i) (i32.const 1)))
          (call $charge
            (i32.const 16) (i32.const 3) (i64.extend_i32_u (local.get $i)) (i32.const 32))
          (if (i32.eqz (i32.load8_u (i32.const 32)))
            (then (global.set $accepted (i32.add (global.get $accepted) (i32.const 1)))))
          (call $reset)
          (br $next)))
      (global.get $accepted)))
  (core instance $main (instantiate $Main
    (with "memory" (instance $memory))
    (with "bank" (instance (export "charge" (func $charge))))))
  (func $charge-many (param "n" u32) (result u32) (canon lift (core func $main "charge-many")))
  (instance $api (export "charge-many" (func $charge-many)))
  (export "demo:charger/api" (instance $api)))
"""
)
"""`charge-many: func(n: u32) -> u32`: charges "wat" 1, 2, ... n cents, n remote writes; the number
of charges accepted so far, over all invocations."""

CLOCKS: Final = (
    b"""
(component
  (import "wasi:clocks/monotonic-clock@0.2.0" (instance $monotonic
    (export "now" (func (result u64)))))
  (import "wasi:clocks/wall-clock@0.2.0" (instance $wall
    (type $datetime' (record (field "seconds" u64) (field "nanoseconds" u32)))
    (export "datetime" (type $datetime (eq $datetime')))
    (export "now" (func (result $datetime)))))
  (import "wasi:random/random@0.2.0" (instance $random
    (export "get-random-u64" (func (result u64)))))
"""
    + _MEMORY
    + b"""
  (core func $monotonic-now (canon lower (func $monotonic "now")))
  (core func $wall-now (canon lower (func $wall "now") (memory $mem)))
  (core func $random-u64 (canon lower (func $random "get-random-u64")))
  (core module $Main
    (import "memory" "memory" (memory 1))
    (import "host" "monotonic" (func $monotonic (result i64)))
    (import "host" "wall" (func $wall (param i32)))
    (import "host" "random" (func $random (result i64)))
    (global $sum (mut i64) (i64.const 0))
    (func $mix (param $value i64)
      (global.set $sum
        (i64.xor (i64.rotl (global.get $sum) (i64.const 7)) (local.get $value))))
    (func (export "read") (param $n i32) (result i64)
      (local $i i32)
      (block $done
        (loop $next
          (br_if $done (i32.ge_u (local.get $i) (local.get $n)))
          (local.set $i (i32.add (local.get $i) (i32.const 1)))
          (call $mix (call $monotonic))
          (call $wall (i32.const 16))
          (call $mix (i64.load (i32.const 16)))
          (call $mix (i64.load32_u (i32.const 24)))
          (call $mix (call $random))
          (br $next)))
      (global.get $sum)))
  (core instance $main (instantiate $Main
    (with "memory" (instance $memory))
    (with "host" (instance
      (export "monotonic" (func $monotonic-now))
      (export "wall" (func $wall-now))
      (export "random" (func $random-u64))))))
  (func $read (param "n" u32) (result u64) (canon lift (core func $main "read")))
  (instance $api (export "read" (func $read)))
  (export "demo:clocks/api" (instance $api)))
"""
)
"""`read: func(n: u32) -> u64`: n times the monotonic clock, the wall clock and a random number; a
digest of every answer so far, over all invocations."""

SLEEPER: Final = b"""
(component
  (import "wasi:io/poll@0.2.0" (instance $poll
    (export "pollable" (type $pollable (sub resource)))
    (export "[method]pollable.block" (func (param "self" (borrow $pollable))))))
  (alias export $poll "pollable" (type $pollable))
  (import "wasi:clocks/monotonic-clock@0.2.0" (instance $monotonic
    (alias outer 1 $pollable (type $outer))
    (export "pollable" (type $pollable (eq $outer)))
    (export "now" (func (result u64)))
    (export "subscribe-duration" (func (param "when" u64) (result (own $pollable))))))
  (core func $now (canon lower (func $monotonic "now")))
  (core func $subscribe (canon lower (func $monotonic "subscribe-duration")))
  (core func $block (canon lower (func $poll "[method]pollable.block")))
  (core func $drop (canon resource.drop $pollable))
  (core module $Main
    (import "host" "now" (func $now (result i64)))
    (import "host" "subscribe" (func $subscribe (param i64) (result i32)))
    (import "host" "block" (func $block (param i32)))
    (import "host" "drop" (func $drop (param i32)))
    (func (export "sleep") (param $ns i64) (result i64)
      (local $before i64) (local $timer i32)
      (local.set $before (call $now))
      (local.set $timer (call $subscribe (local.get $ns)))
      (call $block (local.get $timer))
      (call $drop (local.get $timer))
      (i64.sub (call $now) (local.get $before))))
  (core instance $main (instantiate $Main
    (with "host" (instance
      (export "now" (func $now))
      (export "subscribe" (func $subscribe))
      (export "block" (func $block))
      (export "drop" (func $drop))))))
  (func $sleep (param "ns" u64) (result u64) (canon lift (core func $main "sleep")))
  (instance $api (export "sleep" (func $sleep)))
  (export "demo:sleeper/api" (instance $api)))
"""
"""`sleep: func(ns: u64) -> u64`: waits in `pollable.block`; the nanoseconds that passed."""
