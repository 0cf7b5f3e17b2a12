"""The messages of wasi:http/types that a guest makes: every rule of fields, requests and bodies."""

import pytest

from executor.errors import LimitError
from executor.host.wasi import http_fields
from executor.wasm.values import Err, Ok, Variant

TYPES = "wasi:http/types"
HANDLE = "wasi:http/outgoing-handler.handle"
WHERE = {"authority": "a", "path_with_query": "/"}


def fields_of(guest, *entries):
    return guest.ok(f"{TYPES}.[static]fields.from-list", list(entries))


def entries_of(guest, fields):
    return guest.call(f"{TYPES}.[method]fields.entries", fields)


def change(guest, fields, name, *arguments):
    result = guest.call(f"{TYPES}.[method]fields.{name}", fields, *arguments)
    return "ok" if isinstance(result, Ok) else result.value.case


def request_of(guest, *entries, **set_to):
    request = guest.call(f"{TYPES}.[constructor]outgoing-request", fields_of(guest, *entries))
    for name, value in set_to.items():
        setter = f"{TYPES}.[method]outgoing-request.set-{name.replace('_', '-')}"
        guest.ok(setter, request, value)
    return request


# -- fields --------------------------------------------------------------------------------------


def test_names_are_compared_without_case_and_kept_as_given(guest):
    fields = fields_of(guest, ("X-One", b"1"), ("x-two", b"2"), ("x-one", b"3"))
    assert guest.call(f"{TYPES}.[method]fields.get", fields, "X-ONE") == [b"1", b"3"]
    assert guest.call(f"{TYPES}.[method]fields.has", fields, "X-Two")
    assert not guest.call(f"{TYPES}.[method]fields.has", fields, "x-three")
    assert guest.call(f"{TYPES}.[method]fields.get", fields, "no name") == []
    assert entries_of(guest, fields) == [("X-One", b"1"), ("x-two", b"2"), ("x-one", b"3")]
    assert change(guest, fields, "set", "X-ONE", [b"4", b"5"]) == "ok"
    assert entries_of(guest, fields) == [("x-two", b"2"), ("X-ONE", b"4"), ("X-ONE", b"5")]
    assert change(guest, fields, "append", "x-Two", b"6") == "ok"
    assert change(guest, fields, "delete", "x-one") == "ok"
    assert change(guest, fields, "delete", "x-absent") == "ok"
    assert entries_of(guest, fields) == [("x-two", b"2"), ("x-Two", b"6")]
    assert change(guest, fields, "set", "x-two", []) == "ok"
    assert entries_of(guest, fields) == []


@pytest.mark.parametrize("name", ["", "a b", "a:", "ä", "a\n", "(a)"])
def test_a_name_that_is_no_token_is_refused(guest, name):
    empty = guest.call(f"{TYPES}.[constructor]fields")
    for case in (("append", name, b""), ("set", name, [b""]), ("delete", name)):
        assert change(guest, empty, *case) == "invalid-syntax"
    refused = guest.err(f"{TYPES}.[static]fields.from-list", [("ok", b""), (name, b"")])
    assert refused == Variant("invalid-syntax")


@pytest.mark.parametrize("value", [b"a\r\nb: c", b"\0", b"\x7f", b"a\x01"])
def test_a_value_that_would_end_its_line_is_refused(guest, value):
    fields = guest.call(f"{TYPES}.[constructor]fields")
    assert change(guest, fields, "append", "a", value) == "invalid-syntax"
    assert change(guest, fields, "set", "a", [b"fine", value]) == "invalid-syntax"
    assert entries_of(guest, fields) == []
    assert change(guest, fields, "append", "a", b"\tfine \xe4") == "ok"


@pytest.mark.parametrize("name", sorted(http_fields.FORBIDDEN))
def test_what_frames_a_message_is_the_hosts(guest, name):
    fields = guest.call(f"{TYPES}.[constructor]fields")
    for case in (("append", name, b""), ("set", name.title(), [b""]), ("delete", name)):
        assert change(guest, fields, *case) == "forbidden"
    refused = guest.err(f"{TYPES}.[static]fields.from-list", [(name, b"")])
    assert refused == Variant("forbidden")


def test_the_fields_of_a_message_are_immutable_and_their_clone_is_not(guest):
    request = request_of(guest, ("a", b"1"))
    headers = guest.call(f"{TYPES}.[method]outgoing-request.headers", request)
    for case in (("append", "a", b""), ("set", "a", [b""]), ("delete", "a")):
        assert change(guest, headers, *case) == "immutable"
    clone = guest.call(f"{TYPES}.[method]fields.clone", headers)
    assert change(guest, clone, "append", "b", b"2") == "ok"
    assert entries_of(guest, headers) == [("a", b"1")]
    assert entries_of(guest, clone) == [("a", b"1"), ("b", b"2")]


def test_fields_that_take_too_much_of_the_hosts_memory_stop_the_guest():
    fields = http_fields.Fields()
    for _ in range(15):
        fields.append("a", b"x" * 65_536)
    with pytest.raises(LimitError):
        fields.append("a", b"x" * 65_536)


# -- requests ------------------------------------------------------------------------------------


def test_a_request_is_a_get_until_something_else_is_said(guest):
    request = request_of(guest)
    on = f"{TYPES}.[method]outgoing-request"
    assert guest.call(f"{on}.method", request) == Variant("get")
    for name in ("path-with-query", "scheme", "authority"):
        assert guest.call(f"{on}.{name}", request) is None
    guest.ok(f"{on}.set-method", request, Variant("other", "PURGE"))
    guest.ok(f"{on}.set-path-with-query", request, "/a?b=c")
    guest.ok(f"{on}.set-scheme", request, Variant("HTTP"))
    guest.ok(f"{on}.set-authority", request, "[::1]:8080")
    assert guest.call(f"{on}.method", request) == Variant("other", "PURGE")
    assert guest.call(f"{on}.path-with-query", request) == "/a?b=c"
    assert guest.call(f"{on}.scheme", request) == Variant("HTTP")
    assert guest.call(f"{on}.authority", request) == "[::1]:8080"


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("method", [Variant("other", ""), Variant("other", "a b")]),
        ("path-with-query", ["a", "/a b", "/ä", "/a#b", "http://a/"]),
        ("scheme", [Variant("other", ""), Variant("other", "1x"), Variant("other", "a:")]),
        ("authority", ["", "a b", "a:99999", "a:b", "user@a", "[::1", "a/b"]),
    ],
)
def test_what_cannot_be_sent_cannot_be_set(guest, name, values):
    request = request_of(guest)
    for value in values:
        setter = f"{TYPES}.[method]outgoing-request.set-{name}"
        assert guest.call(setter, request, value) == Err()


def test_options_are_what_was_set(guest):
    options = guest.call(f"{TYPES}.[constructor]request-options")
    for name in ("connect", "first-byte", "between-bytes"):
        on = f"{TYPES}.[method]request-options"
        assert guest.call(f"{on}.{name}-timeout", options) is None
        guest.ok(f"{on}.set-{name}-timeout", options, 5)
        assert guest.call(f"{on}.{name}-timeout", options) == 5


@pytest.mark.parametrize(
    ("request_fields", "set_to", "code"),
    [
        ((), {"scheme": Variant("other", "ftp"), "authority": "a"}, "HTTP-protocol-error"),
        ((), {"path_with_query": "/"}, "HTTP-request-URI-invalid"),
        ((), {"authority": "a"}, "HTTP-request-URI-invalid"),
        ((), WHERE | {"method": Variant("connect")}, "HTTP-request-method-invalid"),
        ((), WHERE | {"path_with_query": "/" * 70_000}, "HTTP-request-URI-too-long"),
        ((("a", b"x" * 140_000),), WHERE, "HTTP-request-header-section-size"),
        ((("content-length", b"5"),), WHERE, "HTTP-request-body-size"),
        ((("content-length", b"x"),), WHERE, "HTTP-request-body-size"),
    ],
)
def test_a_request_that_cannot_be_sent_is_refused_at_once(guest, request_fields, set_to, code):
    request = request_of(guest, *request_fields, **set_to)
    assert guest.err(HANDLE, request, None).case == code
    assert len(guest.state.handles) == 0, "the request was given up all the same"


# -- bodies --------------------------------------------------------------------------------------


def body_of(guest, *entries):
    request = request_of(guest, *entries)
    body = guest.ok(f"{TYPES}.[method]outgoing-request.body", request)
    return request, body, guest.ok(f"{TYPES}.[method]outgoing-body.write", body)


def write(guest, stream, content):
    on = "wasi:io/streams.[method]output-stream"
    return guest.call(f"{on}.blocking-write-and-flush", stream, content)


def finish(guest, body, trailers=None):
    return guest.call(f"{TYPES}.[static]outgoing-body.finish", body, trailers)


def test_a_body_and_its_stream_can_be_had_once(guest):
    request, body, _ = body_of(guest)
    assert guest.call(f"{TYPES}.[method]outgoing-request.body", request) == Err()
    assert guest.call(f"{TYPES}.[method]outgoing-body.write", body) == Err()
    odd = request_of(guest, ("content-length", b"1"), ("content-length", b"2"))
    assert guest.call(f"{TYPES}.[method]outgoing-request.body", odd) == Err()


def test_a_body_is_as_long_as_its_headers_say(guest):
    _, _, stream = body_of(guest, ("Content-Length", b"4"))
    assert write(guest, stream, b"abcd") == Ok()
    failed = write(guest, stream, b"e")
    assert failed.value.case == "last-operation-failed"
    code = guest.call(f"{TYPES}.http-error-code", failed.value.payload)
    assert code == Variant("HTTP-request-body-size", 5)
    assert write(guest, stream, b"") == Err(Variant("closed"))
    _, short, stream = body_of(guest, ("content-length", b"4"))
    assert write(guest, stream, b"abc") == Ok()
    assert finish(guest, short) == Err(Variant("HTTP-request-body-size", 3))


def test_nothing_is_written_behind_the_end(guest):
    _, body, stream = body_of(guest)
    assert finish(guest, body, fields_of(guest, ("x-sum", b"1"))) == Ok()
    assert write(guest, stream, b"late") == Err(Variant("closed"))


def test_what_is_written_before_the_request_is_handed_over_is_bounded(guest):
    _, _, stream = body_of(guest)
    on = "wasi:io/streams.[method]output-stream"
    written = 0
    while room := guest.ok(f"{on}.check-write", stream):
        guest.ok(f"{on}.write-zeroes", stream, room)
        written += room
    assert written == 4 << 20
    failed = guest.err(f"{on}.write", stream, b"x")
    text = guest.call("wasi:io/error.[method]error.to-debug-string", failed.payload)
    assert "before its request was handed" in text


def test_a_request_whose_body_was_given_up_is_not_sent(guest):
    request, body, stream = body_of(guest)
    guest.ok(f"{TYPES}.[method]outgoing-request.set-authority", request, "a")
    guest.ok(f"{TYPES}.[method]outgoing-request.set-path-with-query", request, "")
    guest.drop("wasi:io/streams", "output-stream", stream)
    guest.drop(TYPES, "outgoing-body", body)
    assert guest.err(HANDLE, request, None).case == "internal-error"


def test_a_response_can_be_made_though_it_goes_nowhere(guest):
    headers = fields_of(guest, ("a", b"1"))
    response = guest.call(f"{TYPES}.[constructor]outgoing-response", headers)
    on = f"{TYPES}.[method]outgoing-response"
    assert guest.call(f"{on}.status-code", response) == 200
    assert guest.call(f"{on}.set-status-code", response, 42) == Err()
    guest.ok(f"{on}.set-status-code", response, 404)
    assert guest.call(f"{on}.status-code", response) == 404
    assert entries_of(guest, guest.call(f"{on}.headers", response)) == [("a", b"1")]
    body = guest.ok(f"{on}.body", response)
    stream = guest.ok(f"{TYPES}.[method]outgoing-body.write", body)
    assert write(guest, stream, b"content") == Ok()
    assert finish(guest, body) == Ok()
