"""What real failures mean: from exceptions of the network, TLS, h11 and h2 to `error-code`."""

import errno
import re
import socket
import ssl
from typing import Final

import h2.exceptions
import h11
import trio

from executor.services.http_client_types import HttpFailure
from executor.wasm.values import Variant

UNREACHABLE: Final = {
    errno.ENETUNREACH: "destination-IP-unroutable",
    errno.EHOSTUNREACH: "destination-IP-unroutable",
    errno.EADDRNOTAVAIL: "destination-unavailable",
    errno.ECONNREFUSED: "connection-refused",
    errno.ECONNRESET: "connection-terminated",
    errno.EPIPE: "connection-terminated",
    errno.ECONNABORTED: "connection-terminated",
    errno.ETIMEDOUT: "connection-timeout",
    errno.EACCES: "destination-IP-prohibited",
    errno.EPERM: "destination-IP-prohibited",
    errno.EMFILE: "connection-limit-reached",
    errno.ENFILE: "connection-limit-reached",
}
LASTING: Final = frozenset({"destination-IP-prohibited"})
TEMPORARY_LOOKUPS: Final = frozenset({socket.EAI_AGAIN, socket.EAI_MEMORY, socket.EAI_SYSTEM})
ALERTS: Final = {
    "close_notify": 0,
    "unexpected_message": 10,
    "bad_record_mac": 20,
    "record_overflow": 22,
    "handshake_failure": 40,
    "bad_certificate": 42,
    "unsupported_certificate": 43,
    "certificate_revoked": 44,
    "certificate_expired": 45,
    "certificate_unknown": 46,
    "illegal_parameter": 47,
    "unknown_ca": 48,
    "access_denied": 49,
    "decode_error": 50,
    "decrypt_error": 51,
    "protocol_version": 70,
    "insufficient_security": 71,
    "internal_error": 80,
    "inappropriate_fallback": 86,
    "user_canceled": 90,
    "missing_extension": 109,
    "unsupported_extension": 110,
    "unrecognized_name": 112,
    "bad_certificate_status_response": 113,
    "unknown_psk_identity": 115,
    "certificate_required": 116,
    "no_application_protocol": 120,
}
"""RFC 8446, 6."""
ALERT: Final = re.compile(r"(?:TLSV1_3|TLSV13|TLSV1|SSLV3)_ALERT_(\w+)")


def failure(
    case: str, message: str, payload: object = None, *, lasting: bool = False
) -> HttpFailure:
    return HttpFailure(Variant(case, payload), message, transient=not lasting)


def lookup_failure(host: str, error: socket.gaierror) -> HttpFailure:
    temporary = error.errno in TEMPORARY_LOOKUPS
    rcode = "temporary failure" if temporary else "name not found"
    return failure(
        "DNS-error",
        f"{host} cannot be resolved: {error.strerror}",
        {"rcode": rcode, "info-code": None},
        lasting=not temporary,
    )


def network_failure(where: str, error: BaseException) -> HttpFailure:
    """Of an OSError, or of what trio makes of one."""
    found: OSError | None = None
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno is not None:
            found = cause
        cause = cause.__cause__
    if isinstance(found, ssl.SSLError):
        return tls_failure(where, found)
    if found is None or found.errno is None:
        return failure("connection-terminated", f"{where}: the connection broke: {error}")
    case = UNREACHABLE.get(found.errno, "connection-terminated")
    return failure(case, f"{where}: {found.strerror}", lasting=case in LASTING)


def tls_failure(where: str, error: ssl.SSLError) -> HttpFailure:
    if isinstance(error, ssl.SSLCertVerificationError):
        text = f"{where}: its certificate is not trusted: {error.verify_message}"
        return failure("TLS-certificate-error", text, lasting=True)
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return failure("connection-terminated", f"{where}: the peer ended the TLS connection")
    reason = error.reason or ""
    found = ALERT.match(reason)
    if found is None:
        return failure(
            "TLS-protocol-error", f"{where}: TLS failed: {reason or error}", lasting=True
        )
    name = found.group(1).lower()
    payload = {"alert-id": ALERTS.get(name), "alert-message": name.replace("_", " ")}
    text = f"{where}: TLS alert: {payload['alert-message']}"
    return failure("TLS-alert-received", text, payload, lasting=True)


def protocol_failure(where: str, error: Exception) -> HttpFailure:
    """Of what h11 and h2 say of a peer."""
    text = str(error) or type(error).__name__
    if isinstance(error, h11.RemoteProtocolError) and error.error_status_hint == 431:
        return failure("HTTP-response-header-section-size", f"{where}: {text}", lasting=True)
    if isinstance(error, h11.RemoteProtocolError) and error.error_status_hint == 501:
        return failure("HTTP-response-transfer-coding", f"{where}: {text}", lasting=True)
    if isinstance(error, h2.exceptions.DenialOfServiceError):
        return failure("HTTP-response-header-section-size", f"{where}: {text}", lasting=True)
    if "without sending complete message body" in text:
        return failure("HTTP-response-incomplete", f"{where}: {text}")
    return failure("HTTP-protocol-error", f"{where}: {text}", lasting=True)


class translated:  # noqa: N801  # used as a function is
    """Whatever of the network or the protocol is raised inside is raised as an HttpFailure."""

    __slots__ = ("_where",)

    def __init__(self, where: str) -> None:
        self._where = where

    def __enter__(self) -> None:
        """Nothing is held."""

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is None:
            return
        if isinstance(error, OSError | trio.BrokenResourceError | trio.ClosedResourceError):
            raise network_failure(self._where, error) from error
        if isinstance(error, h11.RemoteProtocolError | h2.exceptions.ProtocolError):
            raise protocol_failure(self._where, error) from error
        if isinstance(error, h11.LocalProtocolError):
            text = f"{self._where}: the request cannot be sent: {error}"
            raise failure("HTTP-protocol-error", text, lasting=True) from error
