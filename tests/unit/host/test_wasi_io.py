import pytest

from executor.errors import GuestTrap
from executor.host import waiting
from executor.host.streams import InputStream, IoError, OutputStream, StreamFailed
from executor.host.wasi import io, streams
from executor.wasm.values import Err, Variant

MONOTONIC = "wasi:clocks/monotonic-clock"
IN = "wasi:io/streams.[method]input-stream"
OUT = "wasi:io/streams.[method]output-stream"


class BytesInput(InputStream):
    def __init__(self, contents):
        self.contents = contents

    def read(self, state, count):
        taken, self.contents = self.contents[:count], self.contents[count:]
        return taken

    def skip(self, state, count):
        return len(self.read(state, count))

    def drop(self, state):
        self.contents = b""


class BrokenOutput(OutputStream):
    def write(self, state, contents):
        raise StreamFailed(IoError("the pipe burst"))

    def drop(self, state):
        pass


def timer(guest, duration):
    return guest.call(f"{MONOTONIC}.subscribe-duration", duration)


def test_poll_names_what_is_ready_and_waits_for_the_earliest(guest):
    timers = [timer(guest, 300), timer(guest, 100), timer(guest, 200), timer(guest, 100)]
    assert guest.call("wasi:io/poll.poll", timers) == [1, 3]
    assert guest.sources.slept_until == [5_000 + 100]
    guest.sources.advance(100)
    assert guest.call("wasi:io/poll.poll", timers) == [1, 2, 3]
    assert guest.state.clock.last_ns == 200


def test_poll_does_not_wait_where_a_stream_is_among_its_pollables(guest):
    stdin = guest.call("wasi:cli/stdin.get-stdin")
    pollables = [timer(guest, 10), guest.call(f"{IN}.subscribe", stdin)]
    assert guest.call("wasi:io/poll.poll", pollables) == [1]
    assert guest.sources.slept_until == []


def test_a_long_wait_looks_at_the_clock_in_between(guest):
    pollable = timer(guest, waiting.WAIT_MAX_NS * 2 + 1)
    guest.call("wasi:io/poll.[method]pollable.block", pollable)
    assert len(guest.sources.slept_until) == 3


def test_poll_of_nothing_traps(guest):
    with pytest.raises(GuestTrap, match="empty list"):
        guest.call("wasi:io/poll.poll", [])


def test_a_block_on_what_is_ready_does_not_wait(guest):
    out = guest.call("wasi:cli/stdout.get-stdout")
    pollable = guest.call(f"{OUT}.subscribe", out)
    assert guest.call("wasi:io/poll.[method]pollable.block", pollable) is None
    assert guest.sources.slept_until == []


def test_an_output_permits_64_kib_at_a_time(guest):
    out = guest.call("wasi:cli/stdout.get-stdout")
    permit = guest.ok(f"{OUT}.check-write", out)
    assert permit == 65_536
    guest.ok(f"{OUT}.write", out, b"x" * permit)
    guest.ok(f"{OUT}.blocking-flush", out)
    guest.ok(f"{OUT}.blocking-write-zeroes-and-flush", out, 4096)


@pytest.mark.parametrize(
    ("function", "argument"),
    [
        ("write", b"x" * 65_537),
        ("write-zeroes", 1 << 63),
        ("blocking-write-and-flush", b"x" * 4097),
        ("blocking-write-zeroes-and-flush", 4097),
    ],
)
def test_a_write_beyond_what_its_function_takes_traps(guest, function, argument):
    out = guest.call("wasi:cli/stdout.get-stdout")
    with pytest.raises(GuestTrap, match=f"{function} of .* it takes at most"):
        guest.call(f"{OUT}.{function}", out, argument)


def read_of(state, contents, count):
    return streams.read(state, state.handles.add(BytesInput(contents)), count).value


def test_one_read_gives_at_most_64_kib(make_guest):
    state = make_guest().state
    assert len(read_of(state, bytes(100_000), 1 << 63)) == 65_536
    assert read_of(state, b"abc", 2) == b"ab"
    state.handles.drop(1)
    state.handles.drop(2)


def test_a_splice_moves_bytes_and_says_how_many(make_guest):
    guest = make_guest()
    state = guest.state
    source = state.handles.add(BytesInput(b"abcdef"))
    out = state.handles.add(LoggingOutput())
    assert streams.splice(state, out, source, 4).value == 4
    assert streams.splice(state, out, source, 10).value == 2
    assert state.handles.get(out, LoggingOutput).written == [b"abcd", b"ef"]
    state.handles.drop(source)
    state.handles.drop(out)


class LoggingOutput(OutputStream):
    def __init__(self):
        self.written = []

    def write(self, state, contents):
        self.written.append(contents)

    def drop(self, state):
        pass


@pytest.mark.parametrize("function", [streams.write_zeroes, streams.write_zeroes_and_flush])
def test_zeroes_are_written_as_many_as_were_asked_for(make_guest, function):
    state = make_guest().state
    out = state.handles.add(LoggingOutput())
    for count in (3, 0, 4096):
        assert function(state, out, count).value is None
    assert state.handles.get(out, LoggingOutput).written == [bytes(3), b"", bytes(4096)]
    state.handles.drop(out)


def test_a_splice_from_a_closed_stream_is_closed(guest):
    stdin = guest.call("wasi:cli/stdin.get-stdin")
    out = guest.call("wasi:cli/stdout.get-stdout")
    assert guest.err(f"{OUT}.splice", out, stdin, 10) == Variant("closed")
    assert guest.err(f"{OUT}.blocking-splice", out, stdin, 10) == Variant("closed")


def test_a_failed_write_hands_out_its_error_once_and_closes_the_stream(make_guest):
    state = make_guest().state
    out = state.handles.add(BrokenOutput())
    failure = streams.write(state, out, b"x")
    assert isinstance(failure, Err)
    assert failure.value.case == "last-operation-failed"
    assert io.debug_string(state, failure.value.payload) == "the pipe burst"
    assert streams.write(state, out, b"x") == streams.CLOSED
    assert streams.check_write(state, out) == streams.CLOSED
    left = state.handles.add(BytesInput(b"ab"))
    assert streams.splice(state, out, left, 1) == streams.CLOSED
    assert streams.read(state, left, 2).value == b"ab", "nothing of it was taken"
    for number in range(1, 4):
        state.handles.drop(number)
