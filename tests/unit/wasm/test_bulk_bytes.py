"""Bytes of streams cross as text, and neither the guest nor the host can tell."""

import random
import resource
import time

import pytest

from executor.wasm.host_function import PENDING, HostFunction
from executor.wasm.instance import Raised, Returned, Trapped
from executor.wasm.types import OwnType
from executor.wasm.values import Err, Ok, Variant
from executor.wasm.wit import parse_interface
from tests.support.machine import host_function, host_interface, machine
from tests.support.stream_guest import pump

STREAMS = """interface wasi:io/streams {
  use error.{error};
  variant stream-error { last-operation-failed(error), closed }
  resource input-stream {
    read: func(len: u64) -> result<list<u8>, stream-error>;
    blocking-read: func(len: u64) -> result<list<u8>, stream-error>;
    skip: func(len: u64) -> result<u64, stream-error>;
  }
  resource output-stream {
    check-write: func() -> result<u64, stream-error>;
    write: func(contents: list<u8>) -> result<_, stream-error>;
    blocking-write-and-flush: func(contents: list<u8>) -> result<_, stream-error>;
  }
}"""
USES = {"input-stream": OwnType("input-stream"), "output-stream": OwnType("output-stream")}


class Pipe:
    """The host's state: what is to be read, what was written, and who was dropped."""

    def __init__(self, chunks=()):
        self.chunks = list(chunks)
        self.written = []
        self.counts = []
        self.dropped = []
        self.reads_of = None
        """In place of a read."""

    def read(self, number, count):
        assert number == 5
        self.counts.append(count)
        if self.reads_of is not None:
            return self.reads_of()
        return Ok(self.chunks.pop(0)) if self.chunks else Err(Variant("closed"))

    def write(self, number, contents):
        assert number == 6
        assert type(contents) is bytes
        self.written.append(contents)
        return Ok()


CALLS = {
    "[method]input-stream.read": Pipe.read,
    "[method]input-stream.blocking-read": Pipe.read,
    "[method]input-stream.skip": lambda _state, _number, count: Ok(count + 1),
    "[method]output-stream.check-write": lambda _state, _number: Ok(1),
    "[method]output-stream.write": Pipe.write,
    "[method]output-stream.blocking-write-and-flush": Pipe.write,
}


def interfaces(calls=CALLS, waits=()):
    wit = parse_interface(STREAMS, {"error": OwnType("error")})

    def drops(*resources):
        return {
            name: lambda state, number, name=name: state.dropped.append((name, number))
            for name in resources
        }

    return (
        host_interface(name="wasi:io/error", versions="0.2", resources=drops("error")),
        host_interface(name="wasi:io/poll", versions="0.2", resources=drops("pollable")),
        host_interface(
            *(
                HostFunction(name=name, type=type_, call=calls[name], waits=name in waits)
                for name, type_ in wit.functions.items()
            ),
            name="wasi:io/streams",
            versions="0.2",
            resources=drops("input-stream", "output-stream"),
        ),
        host_interface(
            host_function("source: func() -> input-stream", lambda _state: 5, uses=USES),
            host_function("sink: func() -> output-stream", lambda _state: 6, uses=USES),
        ),
    )


@pytest.fixture
def made():
    with machine() as one:
        yield one


def started(made, pipe, text=None, **changed):
    return made.start(made.linker(text or pump(), *interfaces(**changed)), pipe)


def test_imports_are_listed_and_compared_as_the_guest_has_them(made):
    component = made.component(pump())
    assert [of.name for of in component.raw_imports] == ["shem:bytes/wasi-io-streams"] * 2
    assert component.import_texts == (
        "wasi:io/error@0.2.0",
        "wasi:io/poll@0.2.0",
        "wasi:io/streams@0.2.0",
        "wasi:io/error@0.2.9",
        "wasi:io/poll@0.2.9",
        "wasi:io/streams@0.2.9",
        "t:host/api",
    )
    assert component.problems(interfaces()) == ()
    assert component.problems(()) == (
        *(
            f"wasi:io/{name}@{v}: this interface is not offered"
            for v in ("0.2.0", "0.2.9")
            for name in ("error", "poll", "streams")
        ),
        "t:host/api: this interface is not offered",
    )


@pytest.mark.parametrize("read", ["read", "blocking-read"])
@pytest.mark.parametrize("write", ["write", "blocking-write-and-flush"])
def test_every_byte_arrives_as_it_was_in_both_directions(made, read, write):
    chunks = [bytes(range(256)), b"", b"\x80", "ÿé".encode(), bytes(65_536), b"\xff" * 65_536]
    pipe = Pipe(chunks)
    instance = started(made, pipe, pump(read=read, write=write))
    total = sum(map(len, chunks))
    assert made.call(instance, "pump", 6, 65_536) == Returned(total)
    assert pipe.written == chunks
    assert pipe.counts == [65_536] * 6
    assert pipe.dropped == [("input-stream", 5), ("output-stream", 6)]


@pytest.mark.parametrize("seed", [random.randrange(1 << 32)])
def test_random_chunks_through_random_versions(made, seed):
    print("seed", seed)
    rnd = random.Random(seed)
    for _ in range(6):
        versions = [rnd.choice(("0.2.0", "0.2.1", "0.2.6")), rnd.choice(("0.2.3", "0.2.12"))]
        text = pump(from_version=versions[0], to_version=versions[1])
        pipe = Pipe(rnd.randbytes(rnd.choice((0, 1, 7, 4_096, 65_536))) for _ in range(30))
        chunks = list(pipe.chunks)
        instance = started(made, pipe, text)
        assert made.call(instance, "pump", 30, 65_536) == Returned(sum(map(len, chunks)))
        assert pipe.written == chunks


def test_the_rest_of_the_interface_goes_past_the_shim(made):
    assert made.call(started(made, Pipe()), "skips", 41, 0) == Returned(42)


def test_errors_of_streams_arrive_with_their_handles(made):
    pipe = Pipe([b"abc"])
    instance = started(made, pipe)
    assert made.call(instance, "pump", 9, 100) == Returned(3)  # then it is closed
    pipe.reads_of = lambda: Err(Variant("last-operation-failed", 77))
    assert made.call(instance, "pump", 9, 100) == Returned(0)
    assert ("error", 77) in pipe.dropped


def test_a_read_may_wait(made):
    waiting = []

    def read(_state, pending, _number, _count):
        waiting.append(pending)
        return PENDING

    name = "[method]input-stream.blocking-read"
    pipe = Pipe()
    instance = started(
        made, pipe, pump(read="blocking-read"), calls=CALLS | {name: read}, waits=(name,)
    )
    pumping = made.begin(instance, "pump", 1, 100)
    while not waiting:
        time.sleep(0.001)
    waiting[0].set(Ok(b"later"))
    assert pumping.wait() == Returned(5)
    assert pipe.written == [b"later"]


def test_an_answer_of_another_type_is_named_in_the_words_of_the_interface(made):
    pipe = Pipe()
    pipe.reads_of = lambda: Ok("text")
    outcome = made.call(started(made, pipe), "pump", 1, 1)
    assert isinstance(outcome, Raised)
    assert str(outcome.error) == (
        "wasi:io/streams.[method]input-stream.read answered with a wrong value:"
        " $.ok: expected bytes for list<u8>, got 'text' (str)"
    )


def test_what_is_too_large_for_one_call_is_a_trap_that_says_so(made):
    pipe = Pipe()
    instance = started(made, pipe)
    assert made.call(instance, "writes", 0, 1 << 20) == Returned(0)
    assert [len(chunk) for chunk in pipe.written] == [1 << 20]
    outcome = made.call(instance, "writes", 0, (1 << 20) + 1)
    assert isinstance(outcome, Trapped)
    assert outcome.message == "trapped (more than 1 MiB of bytes in one call of wasi:io/streams)"


def test_the_shims_memory_does_not_grow_with_what_goes_through(made):
    pipe = Pipe()
    pipe.reads_of = lambda: Ok(b"\xff" * 65_536)
    instance = started(made, pipe)
    assert made.call(instance, "pump", 500, 65_536) == Returned(500 * 65_536)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    pipe.written.clear()
    for _ in range(4):
        made.call(instance, "pump", 500, 65_536)
        pipe.written.clear()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40_000, "KiB"


def test_an_interface_with_members_that_are_not_known_is_left_as_it_is(made):
    more = '(export "[method]output-stream.more" (func (param "self" (borrow $out))))'
    text = pump().replace(
        '(export "[method]output-stream.check-write"',
        more + '\n (export "[method]output-stream.check-write"',
    )
    component = made.component(text)
    assert component.raw_imports == []
    assert component.problems(interfaces()) == (
        "wasi:io/streams@0.2.0.{[method]output-stream.more}: this function is not offered",
        "wasi:io/streams@0.2.9.{[method]output-stream.more}: this function is not offered",
    )


def test_a_signature_that_differs_is_reported_as_without_the_shim(made):
    text = (
        pump()
        .replace(
            '"[method]input-stream.skip" (func (param "self" (borrow $in)) (param "len" u64)',
            '"[method]input-stream.skip" (func (param "self" (borrow $in)) (param "len" u32)',
        )
        .replace("(i64.extend_i32_u (local.get $count))", "(local.get $count)")
        .replace(
            '"skip" (func $skip (param i32 i64 i32))', '"skip" (func $skip (param i32 i32 i32))'
        )
    )
    problems = made.component(text).problems(interfaces())
    assert len(problems) == 2
    assert all("input-stream.skip}: the component wants" in problem for problem in problems)
