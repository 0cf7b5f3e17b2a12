"""Programs of the programmable guest: its operations, their bytes, and the guest itself in Python.

A program is a list of operations of three bytes: code, a, b. The guest (see `guest.c` beside the
tests' support) keeps a counter, a running value, four registers and a file over invocations,
which is what a rebuilt worker must have again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol

from tests.conformance.model.events import Steps

MASK = (1 << 64) - 1
REGISTERS = 4


class Code(IntEnum):
    """What an operation does; a and b are its two bytes."""

    ADD = 0  # the counter grows by a
    READ_LOCAL = 1  # calls of the embedder's functions: argument a, behaviour b
    READ_REMOTE = 2
    WRITE_REMOTE = 3
    LOG = 4  # a line to standard output or, a odd, standard error; it holds b
    INDEX = 5  # the own index, into register a
    JUMP = 6  # asks the gate a, open as the bits of b say; if open, jumps to register a
    JUMP_ANYWHERE = 7  # asks the gate a, open once; if open, jumps near register a
    BEGIN = 8  # begins an atomic region, its index into register a
    END = 9  # ends the region of register a
    MODE = 10  # idempotence mode: a odd is on
    LEVEL = 11  # persistence level a (of three)
    POLICY = 12  # retry policy with a (1 to 4) attempts
    KEY = 13  # a generated key joins the running value
    TRAP = 14  # asks the gate a, open as b says; if open, traps; with b = 255 without asking
    FAIL = 15  # returns err(a)
    EXIT = 16  # asks the gate a, open once; if open, exits with b odd
    WRITE_FILE = 17  # writes b at offset a of the file
    READ_FILE = 18  # the file joins the running value
    STAT_FILE = 19  # the file's modification time joins it
    COMMIT = 20  # asks for a commit
    ASK = 21  # mode, level and attempts as the host has them join it
    SCOPE = 22  # a durable function of its own: writes a with behaviour b % 8; b & 8 asks to trap


@dataclass(frozen=True, slots=True)
class Op:
    """One operation."""

    code: Code
    a: int = 0
    b: int = 0


def encode(program: Sequence[Op]) -> bytes:
    """The argument of the guest's function."""
    return bytes(byte for op in program for byte in (op.code, op.a, op.b))


class Host(Protocol):
    """What the guest imports; each function may yield what happens on the way."""

    def next_operation(self) -> None: ...
    def call(self, function: str, argument: int) -> Steps[int]: ...
    def log_line(self, level: int, text: str) -> Steps[None]: ...
    def own_index(self) -> Steps[int]: ...
    def jump(self, target: int) -> Steps[None]: ...
    def begin_region(self) -> Steps[int]: ...
    def end_region(self, begin: int) -> Steps[None]: ...
    def set_mode(self, on: bool) -> Steps[None]: ...
    def set_level(self, level: str) -> Steps[None]: ...
    def set_attempts(self, attempts: int) -> Steps[None]: ...
    def key(self) -> Steps[tuple[int, int]]: ...
    def commit(self) -> Steps[None]: ...
    def scope(self, argument: int, traps: bool) -> Steps[int]: ...
    def settings(self) -> Steps[tuple[bool, str, int]]: ...
    def trap(self) -> None: ...
    def exit(self, failed: bool) -> None: ...
    def time(self) -> int: ...


LEVELS = ("persist-nothing", "persist-remote-side-effects", "smart")
STREAMS = ("stdout", "stderr")


@dataclass(slots=True)
class Guest:
    """The guest's memory and its file, and its one function."""

    counter: int = 0
    registers: list[int] = field(default_factory=lambda: [0] * REGISTERS)
    file: bytearray = field(default_factory=bytearray)
    file_time: int = 0
    opened: bool = False
    value: int = 0

    def fold(self, seen: int) -> None:
        """What the guest saw becomes part of its answer."""
        self.value = ((self.value ^ seen) * 1_099_511_628_211 + 1) & MASK

    def run(self, program: Sequence[Op], host: Host) -> Steps[tuple[str, int]]:
        """The exported function: `ok` with all that was seen, or `err`."""
        self.value = 14_695_981_039_346_656_037
        for op in program:
            host.next_operation()
            if op.code is Code.FAIL:
                return "err", op.a
            yield from self.step(op, host)
        self.fold(self.counter)
        return "ok", self.value

    def step(self, op: Op, host: Host) -> Steps[None]:
        """One operation."""
        register = op.a % REGISTERS
        match op.code:
            case Code.ADD:
                self.counter += op.a
            case Code.READ_LOCAL | Code.READ_REMOTE | Code.WRITE_REMOTE:
                name = op.code.name.lower().replace("_", "-")
                self.fold((yield from host.call(name, op.a << 8 | op.b)))
            case Code.LOG:
                yield from host.log_line(op.a % 2, f"line {op.b % 10}\n")
            case Code.INDEX:
                self.registers[register] = yield from host.own_index()
            case Code.JUMP | Code.JUMP_ANYWHERE | Code.TRAP | Code.EXIT:
                yield from self.leave(op, host)
            case Code.BEGIN:
                self.registers[register] = yield from host.begin_region()
            case Code.END:
                yield from host.end_region(self.registers[register])
            case Code.MODE:
                yield from host.set_mode(op.a % 2 == 1)
            case Code.LEVEL:
                yield from host.set_level(LEVELS[op.a % 3])
            case Code.POLICY:
                yield from host.set_attempts(op.a % 4 + 1)
            case Code.KEY:
                high, low = yield from host.key()
                self.fold(high)
                self.fold(low)
            case Code.COMMIT:
                yield from host.commit()
            case Code.SCOPE:
                self.fold((yield from host.scope(op.a << 8 | op.b % 8, traps=bool(op.b & 8))))
            case Code.ASK:
                on, level, attempts = yield from host.settings()
                self.fold(int(on) | LEVELS.index(level) << 1 | attempts << 3)
            case _:
                self.touch_file(op, host)

    def leave(self, op: Op, host: Host) -> Steps[None]:
        """The operations that end the run of this instance if their gate is open."""
        if op.code is Code.TRAP and op.b == 255:
            host.trap()
        openings = op.b if op.code in (Code.JUMP, Code.TRAP) else 1
        opened = yield from host.call("gate", op.code << 16 | op.a << 8 | openings)
        self.fold(opened)
        if not opened:
            return
        match op.code:
            case Code.JUMP:
                yield from host.jump(self.registers[op.a % REGISTERS])
            case Code.JUMP_ANYWHERE:
                away = 1000 if op.b % 9 == 8 else -(op.b % 9)
                yield from host.jump(max(self.registers[op.a % REGISTERS] + away, 0))
            case Code.TRAP:
                host.trap()
            case _:
                host.exit(op.b % 2 == 1)

    def touch_file(self, op: Op, host: Host) -> None:
        """The operations on the file: worker state, the same live and in replay."""
        if not self.opened:
            self.opened = True
            self.file_time = host.time()
        match op.code:
            case Code.WRITE_FILE:
                self.file.extend(bytes(max(op.a + 1 - len(self.file), 0)))
                self.file[op.a] = op.b
                self.file_time = host.time()
            case Code.READ_FILE:
                for byte in self.file:
                    self.fold(byte)
                self.fold(len(self.file))
            case Code.STAT_FILE:
                self.fold(self.file_time)
            case _:
                raise AssertionError(op)
