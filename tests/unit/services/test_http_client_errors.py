"""Which `error-code` stands for which failure of the network, of TLS and of the protocols."""

import errno
import socket
import ssl

import h2.exceptions
import h11
import pytest
import trio

from executor.services.http_client_errors import (
    lookup_failure,
    network_failure,
    protocol_failure,
    tls_failure,
    translated,
)
from executor.services.http_client_types import HEAD_BYTES_MAX, HttpFailure


@pytest.mark.parametrize(
    ("number", "code", "transient"),
    [
        (errno.ENETUNREACH, "destination-IP-unroutable", True),
        (errno.EHOSTUNREACH, "destination-IP-unroutable", True),
        (errno.EADDRNOTAVAIL, "destination-unavailable", True),
        (errno.ECONNREFUSED, "connection-refused", True),
        (errno.ECONNRESET, "connection-terminated", True),
        (errno.EPIPE, "connection-terminated", True),
        (errno.ECONNABORTED, "connection-terminated", True),
        (errno.ETIMEDOUT, "connection-timeout", True),
        (errno.EMFILE, "connection-limit-reached", True),
        (errno.EPERM, "destination-IP-prohibited", False),
        (errno.EACCES, "destination-IP-prohibited", False),
        (errno.EIO, "connection-terminated", True),
    ],
)
def test_an_error_of_the_system_has_its_code_and_may_pass_or_not(number, code, transient):
    failed = network_failure("peer:80", OSError(number, "as the system says it"))
    assert (failed.code.case, failed.transient) == (code, transient)
    assert failed.message == "peer:80: as the system says it"


def test_what_trio_makes_of_an_error_is_told_by_its_cause():
    broken = trio.BrokenResourceError()
    broken.__cause__ = OSError(errno.ECONNRESET, "reset by peer")
    with pytest.raises(HttpFailure) as raised, translated("peer:80"):
        raise broken
    assert raised.value.code.case == "connection-terminated"
    assert "reset by peer" in raised.value.message
    with pytest.raises(HttpFailure) as raised, translated("peer:80"):
        raise trio.ClosedResourceError("another task closed it")
    assert raised.value.code.case == "connection-terminated"


@pytest.mark.parametrize(
    ("number", "rcode", "transient"),
    [
        (socket.EAI_NONAME, "name not found", False),
        (socket.EAI_AGAIN, "temporary failure", True),
        (socket.EAI_SYSTEM, "temporary failure", True),
    ],
)
def test_a_name_that_cannot_be_resolved(number, rcode, transient):
    failed = lookup_failure("nowhere.test", socket.gaierror(number, "why"))
    assert failed.code.case == "DNS-error"
    assert failed.code.payload == {"rcode": rcode, "info-code": None}
    assert failed.transient == transient


def alert(reason):
    error = ssl.SSLError(1, f"[SSL: {reason}]")
    error.reason = reason
    return error


@pytest.mark.parametrize(
    ("reason", "number", "text"),
    [
        ("TLSV1_ALERT_PROTOCOL_VERSION", 70, "protocol version"),
        ("TLSV13_ALERT_CERTIFICATE_REQUIRED", 116, "certificate required"),
        ("SSLV3_ALERT_HANDSHAKE_FAILURE", 40, "handshake failure"),
        ("TLSV1_ALERT_SOMETHING_NEW", None, "something new"),
    ],
)
def test_an_alert_of_the_peer_is_told_with_its_number(reason, number, text):
    failed = tls_failure("peer", alert(reason))
    assert failed.code.case == "TLS-alert-received"
    assert failed.code.payload == {"alert-id": number, "alert-message": text}
    assert not failed.transient


def test_other_failures_of_tls_are_of_the_protocol_or_of_the_connection():
    failed = tls_failure("peer", alert("WRONG_VERSION_NUMBER"))
    assert (failed.code.case, failed.transient) == ("TLS-protocol-error", False)
    ended = tls_failure("peer", ssl.SSLEOFError(8, "EOF occurred in violation of protocol"))
    assert (ended.code.case, ended.transient) == ("connection-terminated", True)


@pytest.mark.parametrize(
    ("answer", "code", "transient"),
    [
        (b"this is no HTTP\r\n\r\n", "HTTP-protocol-error", False),
        (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\n",
            "HTTP-response-transfer-coding",
            False,
        ),
        (b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n", "HTTP-protocol-error", False),
        (
            b"HTTP/1.1 200 OK\r\nlarge: " + b"x" * HEAD_BYTES_MAX,
            "HTTP-response-header-section-size",
            False,
        ),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf", "HTTP-response-incomplete", True),
    ],
)
def test_what_a_peer_says_wrong(answer, code, transient):
    state = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES_MAX)
    state.send(h11.Request(method="GET", target="/", headers=[("host", "peer")]))
    state.send(h11.EndOfMessage())

    def receive():
        with translated("peer:80"):
            state.receive_data(answer)
            state.receive_data(b"")
            while True:
                state.next_event()

    with pytest.raises(HttpFailure) as raised:
        receive()
    assert (raised.value.code.case, raised.value.transient) == (code, transient)


def test_of_http_2_too_much_of_a_head_is_told_from_other_failures():
    too_much = protocol_failure("peer", h2.exceptions.DenialOfServiceError("too large"))
    assert too_much.code.case == "HTTP-response-header-section-size"
    other = protocol_failure("peer", h2.exceptions.FrameTooLargeError("frame"))
    assert (other.code.case, other.transient) == ("HTTP-protocol-error", False)
