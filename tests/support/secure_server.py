"""An HTTP/2 server over TLS, hypercorn's, in the test's own trio loop; and whom to trust for it.

The certificate is made by `openssl`, for 127.0.0.1 and localhost; a test skips where there is none.
"""

import shutil
import ssl
import subprocess
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
import trio
from hypercorn.config import Config
from hypercorn.trio import serve

Application = Callable[[dict[str, Any], Any, Any], Awaitable[None]]


class Certificate(NamedTuple):
    file: Path
    key: Path
    folder: TemporaryDirectory[str]

    def trusted(self) -> ssl.SSLContext:
        """For a client that trusts it, and nothing else."""
        context = ssl.create_default_context(cafile=self.file)
        context.set_alpn_protocols(["h2", "http/1.1"])
        return context


@cache
def certificate() -> Certificate:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed: no certificate for a server of the test's own")
    folder = TemporaryDirectory()
    made = Certificate(Path(folder.name, "cert.pem"), Path(folder.name, "key.pem"), folder)
    subprocess.run(
        [
            *(openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-nodes", "-days", "30", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
            *("-keyout", str(made.key), "-out", str(made.file)),
        ],
        check=True,
        capture_output=True,
    )
    return made


class SecureServer:
    def __init__(self, port: int) -> None:
        self.port = port
        self.authority = f"127.0.0.1:{port}"
        self.stop = trio.Event()
        self.stopped = trio.Event()


@asynccontextmanager
async def secure_server(application: Application, port: int = 0, **options: Any):
    """`options` are those of hypercorn's configuration."""
    made = certificate()
    config = Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.certfile, config.keyfile = str(made.file), str(made.key)
    config.errorlog = None
    config.graceful_timeout = 0.1
    for name, value in options.items():
        setattr(config, name, value)
    async with trio.open_nursery() as nursery:
        stop = trio.Event()
        [address] = await nursery.start(
            lambda task_status: serve(
                application, config, shutdown_trigger=stop.wait, task_status=task_status
            )
        )
        yield SecureServer(int(address.rpartition(":")[2]))
        stop.set()
        nursery.cancel_scope.deadline = trio.current_time() + 2


async def answering(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Echoes what it was sent, says over what, and counts the body in a trailer."""
    if scope["type"] != "http":
        raise NotImplementedError(scope["type"])
    body = b""
    while True:
        event = await receive()
        body += event.get("body", b"")
        if event["type"] == "http.disconnect":
            return
        if not event.get("more_body"):
            break
    count = int(scope["path"].strip("/") or len(body))
    headers = [
        (b"x-version", scope["http_version"].encode()),
        (b"x-peer", str(scope["client"][1]).encode()),
        (b"trailer", b"x-count"),
    ]
    trailers = "http.response.trailers" in scope.get("extensions", {})
    await send(
        {
            "type": "http.response.start",
            "status": 200,
            "headers": headers,
            "trailers": trailers,
        }
    )
    content = body or bytes(count)
    for start in range(0, len(content), 50_000):
        piece = content[start : start + 50_000]
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})
    if trailers:
        fields = [(b"x-count", str(count).encode())]
        await send({"type": "http.response.trailers", "headers": fields, "more_trailers": False})
