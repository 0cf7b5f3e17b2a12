"""A body of 1 GB takes no more memory than one of a megabyte, live and in replay."""

import json
import subprocess
import sys

import pytest

from tests.support.http_server import http_server

MIB = 1 << 20
BYTES = 1 << 30


@pytest.mark.slow
def test_a_response_of_a_gigabyte_is_read_and_replayed_in_flat_memory(tmp_path):
    with http_server() as server:
        child = subprocess.run(
            [
                *(sys.executable, "-m", "tests.support.large_body"),
                *(str(tmp_path), f"{server.url}/bytes/{BYTES}"),
            ],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert child.returncode == 0, child.stderr
    told = json.loads(child.stdout)
    print(told)
    assert told["count"] == BYTES
    assert told["divergence"] == ""
    assert told["peak"] - told["before"] < 64 * MIB
    assert told["replaying"] - told["before"] < 64 * MIB
    assert [request.path for request in server.requests] == ["/bytes/1000000", f"/bytes/{BYTES}"]
