import subprocess
import sys
import urllib.request

import pytest
import trio

from executor import Transient
from executor.cli import demo_bank, demo_receiver
from executor.cli.demo_bank import RECEIVER_VARIABLE, charge
from executor.cli.demo_receiver import started_receiver
from executor.wasm.values import Ok


class Call:
    def __init__(self, key):
        self.key = key
        self.worker = "order/alice"


def call_bank(key, who, cents):
    function = getattr(charge, "function", charge)
    return trio.run(function, Call(key), who, cents)


def test_a_key_is_charged_once_however_often_it_comes(monkeypatch):
    with started_receiver() as receiver:
        monkeypatch.setenv(RECEIVER_VARIABLE, receiver.url)
        assert receiver.charges() == []
        first = call_bank("key-1", "alice", 5)
        assert first == Ok("ch-001")
        assert call_bank("key-2", "bob", 7) == Ok("ch-002")
        assert call_bank("key-1", "alice", 5) == first
        seen = [(c.key, c.who, c.cents, c.requests, c.charged) for c in receiver.charges()]
        assert seen == [("key-1", "alice", 5, 2, 1), ("key-2", "bob", 7, 1, 1)]
        assert receiver.requests() == 3


def test_a_bank_that_is_not_there_is_a_transient_error(monkeypatch):
    with started_receiver() as receiver:
        monkeypatch.setenv(RECEIVER_VARIABLE, receiver.url)
    with pytest.raises(Transient, match="was not reached"):
        call_bank("key-1", "alice", 5)


def test_the_server_ends_with_the_process_that_started_it():
    process = subprocess.Popen(
        (sys.executable, "-I", "-S", demo_receiver.__file__),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            port = int(process.stdout.readline())
            url = f"http://127.0.0.1:{port}/"
            assert urllib.request.urlopen(url, timeout=10).read() == b"[]"
            process.stdin.close()
            assert process.wait(timeout=30) == 0
        finally:
            process.kill()


def test_the_bank_is_bound_to_the_guests_import():
    assert demo_bank.charge is charge
