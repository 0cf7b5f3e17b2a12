"""A guest that does what it is told: one step of a program after another, in the rules' terms.

`run: func(program: string) -> u64` reads two characters a step, blanks between steps allowed. The
second is a digit: a number n, a register r, or unused. It answers the total, which outlives the
invocation; `total: func() -> u64` reads it.

| step | does                                                                              |
|------|-----------------------------------------------------------------------------------|
| `w`n | total = total * 10 + what the peer's `write(n)` answers (a remote write)          |
| `r`n | last = what the peer's `read(n)` answers (a remote read)                          |
| `l`. | last = 1, from a read-local call (the clock)                                      |
| `k`r | register r = low half of a generated idempotency key                              |
| `=`r | total = register r                                                                |
| `i`r | register r = get-oplog-index                                                      |
| `j`r | set-oplog-index of register r, if last is not 0                                   |
| `J`n | set-oplog-index of the number n, if last is not 0                                 |
| `b`r | register r = mark-begin-operation                                                 |
| `e`r | mark-end-operation of register r                                                  |
| `z`. | persist-nothing from here on                                                      |
| `s`. | smart again                                                                       |
| `m`n | idempotence mode off (0) or on (1)                                                |
| `p`n | retry policy: n attempts, 1 ms apart                                              |
| `t`. | traps if last is not 0                                                            |
| `T`. | traps                                                                             |
| `f`. | calls a function that is not offered                                              |
| `v`. | total = total * 10 + 1 if idempotence mode is on, else + 0                        |
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from executor import Executor, host_function
from executor.records import Invocation
from oplog.engine import Engine
from tests.support.executors import LastingEngine, copy_oplog, opened, worker_entries
from tests.support.programs import MEMORY

PEER: Final = "demo:rules/peer"

RULES: Final = (
    b"""
(component
  (import "demo:rules/peer" (instance $peer
    (export "write" (func (param "step" u32) (result u32)))
    (export "read" (func (param "step" u32) (result u32)))))
  (import "wasi:clocks/monotonic-clock@0.2.0" (instance $clock
    (export "now" (func (result u64)))))
  (import "golem:api/host@1.1.6" (instance $host
    (type $uuid' (record (field "high-bits" u64) (field "low-bits" u64)))
    (export "uuid" (type $uuid (eq $uuid')))
    (type $level' (variant
      (case "persist-nothing") (case "persist-remote-side-effects") (case "smart")))
    (export "persistence-level" (type $level (eq $level')))
    (type $policy' (record (field "max-attempts" u32) (field "min-delay" u64)
      (field "max-delay" u64) (field "multiplier" f64) (field "max-jitter-factor" (option f64))))
    (export "retry-policy" (type $policy (eq $policy')))
    (type $forked' (enum "original" "forked"))
    (export "fork-result" (type $forked (eq $forked')))
    (export "get-oplog-index" (func (result u64)))
    (export "set-oplog-index" (func (param "oplog-idx" u64)))
    (export "mark-begin-operation" (func (result u64)))
    (export "mark-end-operation" (func (param "begin" u64)))
    (export "get-idempotence-mode" (func (result bool)))
    (export "set-idempotence-mode" (func (param "idempotent" bool)))
    (export "set-oplog-persistence-level" (func (param "new-persistence-level" $level)))
    (export "set-retry-policy" (func (param "new-retry-policy" $policy)))
    (export "generate-idempotency-key" (func (result $uuid)))
    (export "fork" (func (param "new-name" string) (result $forked)))))
"""
    + MEMORY
    + b"""
  (core func $write (canon lower (func $peer "write")))
  (core func $read (canon lower (func $peer "read")))
  (core func $now (canon lower (func $clock "now")))
  (core func $get-index (canon lower (func $host "get-oplog-index")))
  (core func $set-index (canon lower (func $host "set-oplog-index")))
  (core func $begin (canon lower (func $host "mark-begin-operation")))
  (core func $end (canon lower (func $host "mark-end-operation")))
  (core func $get-mode (canon lower (func $host "get-idempotence-mode")))
  (core func $set-mode (canon lower (func $host "set-idempotence-mode")))
  (core func $set-level (canon lower (func $host "set-oplog-persistence-level")))
  (core func $set-policy (canon lower (func $host "set-retry-policy")))
  (core func $key (canon lower (func $host "generate-idempotency-key") (memory $mem)))
  (core func $fork (canon lower (func $host "fork") (memory $mem) string-encoding=utf8))
  (core module $Main
    (import "memory" "memory" (memory 1))
    (import "memory" "reset" (func $reset))
    (import "host" "write" (func $write (param i32) (result i32)))
    (import "host" "read" (func $read (param i32) (result i32)))
    (import "host" "now" (func $now (result i64)))
    (import "host" "get-index" (func $get-index (result i64)))
    (import "host" "set-index" (func $set-index (param i64)))
    (import "host" "begin" (func $begin (result i64)))
    (import "host" "end" (func $end (param i64)))
    (import "host" "get-mode" (func $get-mode (result i32)))
    (import "host" "set-mode" (func $set-mode (param i32)))
    (import "host" "set-level" (func $set-level (param i32)))
    (import "host" "set-policy" (func $set-policy (param i32 i64 i64 f64 i32 f64)))
    (import "host" "key" (func $key (param i32)))
    (import "host" "fork" (func $fork (param i32 i32) (result i32)))
    (global $total (mut i64) (i64.const 0))
    (global $last (mut i32) (i32.const 0))
    (func $append (param $digit i32)
      (global.set $total (i64.add (i64.mul (global.get $total) (i64.const 10))
        (i64.extend_i32_u (local.get $digit)))))
    (func $step (param $op i32) (param $n i32)
      (local $register i32)
      (local.set $register (i32.shl (local.get $n) (i32.const 3)))
      (if (i32.eq (local.get $op) (i32.const 119)) (then
        (call $append (call $write (local.get $n)))))
      (if (i32.eq (local.get $op) (i32.const 114)) (then
        (global.set $last (call $read (local.get $n)))))
      (if (i32.eq (local.get $op) (i32.const 108)) (then
        (global.set $last (i64.ne (call $now) (i64.const 0)))))
      (if (i32.eq (local.get $op) (i32.const 107)) (then
        (call $key (i32.const 128))
        (i64.store (local.get $register) (i64.load (i32.const 136)))))
      (if (i32.eq (local.get $op) (i32.const 61)) (then
        (global.set $total (i64.load (local.get $register)))))
      (if (i32.eq (local.get $op) (i32.const 105)) (then
        (i64.store (local.get $register) (call $get-index))))
      (if (i32.eq (local.get $op) (i32.const 106)) (then
        (if (global.get $last) (then (call $set-index (i64.load (local.get $register)))))))
      (if (i32.eq (local.get $op) (i32.const 74)) (then
        (if (global.get $last) (then (call $set-index (i64.extend_i32_u (local.get $n)))))))
      (if (i32.eq (local.get $op) (i32.const 98)) (then
        (i64.store (local.get $register) (call $begin))))
      (if (i32.eq (local.get $op) (i32.const 101)) (then
        (call $end (i64.load (local.get $register)))))
      (if (i32.eq (local.get $op) (i32.const 122)) (then (call $set-level (i32.const 0))))
      (if (i32.eq (local.get $op) (i32.const 115)) (then (call $set-level (i32.const 2))))
      (if (i32.eq (local.get $op) (i32.const 109)) (then (call $set-mode (local.get $n))))
      (if (i32.eq (local.get $op) (i32.const 112)) (then
        (call $set-policy (local.get $n) (i64.const 1000000) (i64.const 1000000)
          (f64.const 1) (i32.const 0) (f64.const 0))))
      (if (i32.eq (local.get $op) (i32.const 116)) (then
        (if (global.get $last) (then unreachable))))
      (if (i32.eq (local.get $op) (i32.const 84)) (then unreachable))
      (if (i32.eq (local.get $op) (i32.const 102)) (then
        (drop (call $fork (i32.const 0) (i32.const 0)))))
      (if (i32.eq (local.get $op) (i32.const 118)) (then (call $append (call $get-mode)))))
    (func (export "run") (param $at i32) (param $length i32) (result i64)
      (local $stop i32)
      (call $reset)
      (local.set $stop (i32.add (local.get $at) (local.get $length)))
      (loop $next
        (if (i32.ge_u (local.get $at) (local.get $stop)) (then (return (global.get $total))))
        (if (i32.eq (i32.load8_u (local.get $at)) (i32.const 32))
          (then (local.set $at (i32.add (local.get $at) (i32.const 1))))
          (else
            (call $step (i32.load8_u (local.get $at))
              (i32.sub (i32.load8_u offset=1 (local.get $at)) (i32.const 48)))
            (local.set $at (i32.add (local.get $at) (i32.const 2)))))
        (br $next))
      unreachable)
    (func (export "total") (result i64) (global.get $total)))
  (core instance $main (instantiate $Main
    (with "memory" (instance $memory))
    (with "host" (instance
      (export "write" (func $write)) (export "read" (func $read)) (export "now" (func $now))
      (export "get-index" (func $get-index)) (export "set-index" (func $set-index))
      (export "begin" (func $begin)) (export "end" (func $end))
      (export "get-mode" (func $get-mode)) (export "set-mode" (func $set-mode))
      (export "set-level" (func $set-level)) (export "set-policy" (func $set-policy))
      (export "key" (func $key)) (export "fork" (func $fork))))))
  (func $run (param "program" string) (result u64)
    (canon lift (core func $main "run") (memory $mem) (realloc $realloc) string-encoding=utf8))
  (func $total (result u64) (canon lift (core func $main "total")))
  (instance $api (export "run" (func $run)) (export "total" (func $total)))
  (export "demo:rules/api" (instance $api)))
"""
)


class RulesPeer:
    """The peer: it notes every write with its key, and answers reads from what it was given.

    A write of n is answered n. A read of n takes the next of `answers[n]`, 0 once they are used up.
    `before(call, n)`, if set, is awaited before a write is answered: it may raise, or wait.
    """

    def __init__(self, **answers: list[int]) -> None:
        self.writes: list[int] = []
        self.keys: list[str] = []
        self.reads: list[int] = []
        self.answers = {int(name[1:]): list(values) for name, values in answers.items()}
        self.before: Any = None

    def functions(self) -> list[Any]:
        @host_function(PEER, "write: func(step: u32) -> u32", type="write-remote")
        async def write(call: Any, step: int) -> int:
            self.writes.append(step)
            self.keys.append(call.key)
            if self.before is not None:
                await self.before(call, step)
            return step

        @host_function(PEER, "read: func(step: u32) -> u32", type="read-remote")
        async def read(_call: Any, step: int) -> int:
            self.reads.append(step)
            left = self.answers.get(step, [])
            return left.pop(0) if left else 0

        return [write, read]


WORKER: Final = "rules/w"
RUN: Final = "demo:rules/api.{run}"


@asynccontextmanager
async def rules(engine: Engine, peer: RulesPeer, **options: Any) -> AsyncIterator[Executor]:
    """An executor with the guest deployed."""
    async with opened(engine, host=peer.functions(), **options) as shem:
        await shem.deploy(RULES, name="rules")
        yield shem


async def ran(program: str, peer: RulesPeer, engine: Engine | None = None) -> Any:
    """The total after one program in a new worker (or one of `engine`)."""
    async with rules(engine or LastingEngine(), peer) as shem:
        return await shem.invoke(WORKER, "run", [program])


async def taken_up(
    engine: Engine, count: int, peer: RulesPeer, key: str
) -> tuple[Engine, Invocation]:
    """What the first `count` entries of the worker come to in another process."""
    target = LastingEngine()
    copy_oplog(engine, target, WORKER, count)
    async with opened(target, host=peer.functions(), recover="all") as shem:
        return target, await shem.wait(WORKER, key)


def index_of(engine: Engine, kind: type, nth: int = 1) -> int:
    """The index of the nth entry of a kind."""
    return [i for i, entry in worker_entries(engine, WORKER) if isinstance(entry, kind)][nth - 1]
