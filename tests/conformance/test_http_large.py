"""Bodies that are larger than memory take no more of it than small ones, both ways: live, in
replay, and when a request is sent again after a crash.
"""

import json
import signal
import subprocess
import sys

import pytest

from tests.support import guests
from tests.support.http_server import http_server
from tests.support.terminals import Terminals

MIB = 1 << 20
RECEIVED_BYTES = 1 << 30
SENT_BYTES = 256 * MIB
FLAT_BYTES = 64 * MIB


def measured(folder, *what):
    child = subprocess.run(
        [sys.executable, "-m", "tests.support.large_body", str(folder), *what],
        capture_output=True,
        text=True,
        timeout=1_800,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    told = json.loads(child.stdout)
    print(told)
    assert told["divergence"] == ""
    assert told["peak"] - told["before"] < FLAT_BYTES
    assert told["replaying"] - told["before"] < FLAT_BYTES
    return told["answer"]


@pytest.mark.slow
def test_a_response_of_a_gigabyte_is_read_and_replayed_in_flat_memory(tmp_path):
    with http_server() as server:
        count, _ = measured(tmp_path, "read", f"{server.url}/bytes/{RECEIVED_BYTES}")
    assert count == RECEIVED_BYTES
    assert [request.path for request in server.requests] == [
        "/bytes/1000000",
        f"/bytes/{RECEIVED_BYTES}",
    ]


@pytest.mark.slow
def test_a_request_of_a_quarter_of_a_gigabyte_is_sent_in_flat_memory(tmp_path):
    with http_server() as server:
        answer = measured(tmp_path, "send", f"{server.url}/count", str(SENT_BYTES))
    assert answer == f"200 {SENT_BYTES}"
    assert [request.complete for request in server.requests] == [True]


@pytest.mark.slow
def test_a_large_request_that_a_crash_cut_off_is_sent_again_from_the_record_in_flat_memory(
    tmp_path,
):
    """What was written before the crash is in the oplog, and nowhere else."""
    (tmp_path / "fetcher.wasm").write_bytes(guests.fetcher_component())
    with http_server() as server:
        terminals = Terminals(tmp_path)
        deployed = terminals.shem("deploy", "fetcher.wasm", "--allow-net", "127.0.0.1")
        assert deployed.code == 0, deployed.stderr
        died = terminals.shem(
            *("invoke", "fetcher/w", "pour", f'"{server.url}/count"', str(SENT_BYTES)),
            *("--key", "large", "--crash-at", "append:12000"),
        )
        assert died.code == -signal.SIGKILL, died.stderr
        terminals.close()
        answer = measured(tmp_path / ".shem", "recover")
    assert answer == f"200 {SENT_BYTES}"
    cut, whole = server.requests
    assert (cut.complete, whole.complete, cut.key == whole.key) == (False, True, True)
    assert int(cut.body) > SENT_BYTES // 4
