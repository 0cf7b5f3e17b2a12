"""The bank that the crash tests charge: host functions that ask the receiver by HTTP.

They are deployed with `--host`, as a user's are, and tell one case from another by its path at the
receiver: the case's name.
"""

import contextlib
import json
import os
from contextvars import ContextVar
from http.client import HTTPConnection
from pathlib import Path

from executor import Ok, Transient, host_function

PORT_VARIABLE = "SHEM_CRASH_RECEIVER"
MARKERS_VARIABLE = "SHEM_CRASH_MARKERS"
"""A folder: `flaky` fails once for each key, and leaves a file of its name here."""
CHARGE = "charge: func(who: string, cents: u64) -> result<string, string>"
case = ContextVar("case", default="")
"""The case, where one process runs several; else it is in the environment."""


def charge(call, who, cents):
    peer = case.get() or os.environ["SHEM_TORTURE_CASE"]
    connection = HTTPConnection("127.0.0.1", int(os.environ[PORT_VARIABLE]), timeout=30)
    with contextlib.closing(connection):
        body = json.dumps({"who": who, "cents": cents})
        connection.request("POST", f"/{peer}", body, {"idempotency-key": call.key})
        return Ok(json.loads(connection.getresponse().read())["reference"])


@host_function("demo:bank/api", CHARGE, type="write-remote")
def writing(call, who, cents):
    return charge(call, who, cents)


@host_function("demo:bank/api", CHARGE, type="read-remote")
def reading(call, who, cents):
    return charge(call, who, cents)


@host_function("demo:bank/api", CHARGE, type="write-remote")
def flaky(call, who, cents):
    marker = Path(os.environ[MARKERS_VARIABLE], call.key)
    if not marker.exists():
        marker.touch()
        raise Transient("the bank is busy")
    return charge(call, who, cents)


@host_function("demo:orders/bank", CHARGE, type="write-remote")
def ordering(call, who, cents):
    return charge(call, who, cents)
