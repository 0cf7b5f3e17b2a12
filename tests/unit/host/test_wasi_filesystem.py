import pytest

from executor.host.streams import IoError
from executor.host.wasi import filesystem
from executor.services.files import FileTree
from executor.services.files_nodes import FileLimits
from executor.wasm.values import Variant
from tests.support.host_calls import CREATED_NS

TYPES = "wasi:filesystem/types"
D = f"{TYPES}.[method]descriptor"
IN = "wasi:io/streams.[method]input-stream"
OUT = "wasi:io/streams.[method]output-stream"
READ_WRITE = ["read", "write"]
NOW = Variant("now")
NO_CHANGE = Variant("no-change")


@pytest.fixture
def root(guest):
    return root_of(guest)


def root_of(guest):
    ((number, path),) = guest.call("wasi:filesystem/preopens.get-directories")
    assert path == "/"
    return number


def create(guest, root, path, contents=b""):
    file = guest.ok(f"{D}.open-at", root, [], path, ["create", "exclusive"], READ_WRITE)
    guest.ok(f"{D}.write", file, contents, 0)
    return file


def open_at(guest, root, path, *flags, follow=True):
    return guest.ok(f"{D}.open-at", root, ["symlink-follow"] * follow, path, [], list(flags))


def test_the_one_preopened_directory_is_the_root(guest, root):
    assert guest.ok(f"{D}.get-type", root) == "directory"
    assert guest.ok(f"{D}.get-flags", root) == ["read", "mutate-directory"]
    again = root_of(guest)
    assert again != root
    assert guest.call(f"{D}.is-same-object", root, again) is True


def test_a_file_is_written_and_read_at_offsets(guest, root):
    file = create(guest, root, "notes.txt", b"hello")
    assert guest.ok(f"{D}.write", file, b"!", 6) == 1
    assert guest.ok(f"{D}.read", file, 3, 0) == (b"hel", False)
    assert guest.ok(f"{D}.read", file, 100, 3) == (b"lo\0!", True)
    assert guest.ok(f"{D}.read", file, 100, 50) == (b"", True)
    assert guest.err(f"{D}.read", file, 1, (1 << 64) - 1) == "invalid"


def test_one_read_gives_at_most_64_kib(guest, root):
    file = create(guest, root, "big", bytes(70_000))
    contents, ended = guest.ok(f"{D}.read", file, 1 << 63, 0)
    assert (len(contents), ended) == (65_536, False)
    contents, ended = guest.ok(f"{D}.read", file, 1 << 63, 65_536)
    assert (len(contents), ended) == (70_000 - 65_536, True)


def test_streams_read_write_and_append(guest, root):
    file = create(guest, root, "a")
    out = guest.ok(f"{D}.write-via-stream", file, 2)
    guest.ok(f"{OUT}.write", out, b"cd")
    guest.ok(f"{OUT}.blocking-write-and-flush", out, b"ef")
    append = guest.ok(f"{D}.append-via-stream", file)
    guest.ok(f"{OUT}.write", append, b"gh")
    source = guest.ok(f"{D}.read-via-stream", file, 1)
    assert guest.ok(f"{IN}.read", source, 2) == b"\0c"
    assert guest.ok(f"{IN}.skip", source, 2) == 2
    assert guest.ok(f"{IN}.blocking-read", source, 100) == b"fgh"
    assert guest.ok(f"{IN}.read", source, 0) == b""
    assert guest.err(f"{IN}.read", source, 1) == Variant("closed")
    assert guest.err(f"{IN}.blocking-skip", source, 1) == Variant("closed")
    guest.ok(f"{OUT}.write", append, b"i")
    assert guest.ok(f"{IN}.read", source, 5) == b"i"
    target = guest.ok(f"{D}.append-via-stream", create(guest, root, "b"))
    assert guest.ok(f"{OUT}.splice", target, guest.ok(f"{D}.read-via-stream", file, 0), 4) == 4
    pollable = guest.call(f"{OUT}.subscribe", target)
    assert guest.call("wasi:io/poll.[method]pollable.ready", pollable) is True


def test_a_stream_that_passes_the_quota_says_so_and_closes(guest, root):
    file = create(guest, root, "a")
    guest.ok(f"{D}.set-size", file, 199_999)
    out = guest.ok(f"{D}.append-via-stream", file)
    failure = guest.err(f"{OUT}.write", out, b"xy")
    assert failure.case == "last-operation-failed"
    assert guest.call(f"{TYPES}.filesystem-error-code", failure.payload) == "quota"
    assert "quota" in guest.call("wasi:io/error.[method]error.to-debug-string", failure.payload)
    assert guest.call("wasi:sockets/network.network-error-code", failure.payload) is None
    assert guest.err(f"{OUT}.check-write", out) == Variant("closed")
    guest.drop("wasi:io/error", "error", failure.payload)


def test_an_error_of_no_file_has_no_file_error_code(make_guest):
    state = make_guest().state
    error = state.handles.add(IoError("other"))
    assert filesystem.error_code(state, error) is None
    state.handles.drop(error)


def test_a_descriptor_does_only_what_it_was_opened_for(guest, root):
    create(guest, root, "a", b"x")
    reader = open_at(guest, root, "a", "read")
    assert guest.err(f"{D}.write", reader, b"y", 0) == "bad-descriptor"
    assert guest.err(f"{D}.write-via-stream", reader, 0) == "bad-descriptor"
    assert guest.err(f"{D}.append-via-stream", reader) == "bad-descriptor"
    assert guest.err(f"{D}.set-size", reader, 0) == "bad-descriptor"
    writer = open_at(guest, root, "a", "write")
    assert guest.err(f"{D}.read", writer, 1, 0) == "bad-descriptor"
    assert guest.err(f"{D}.read-via-stream", writer, 0) == "bad-descriptor"
    assert guest.err(f"{D}.write-via-stream", writer, 1 << 63) == "invalid"
    assert guest.ok(f"{D}.write", writer, b"z", 0) == 1


def test_a_directory_is_no_file_and_a_file_no_directory(guest, root):
    file = create(guest, root, "a")
    assert guest.err(f"{D}.read", root, 1, 0) == "is-directory"
    assert guest.err(f"{D}.read-via-stream", root, 0) == "is-directory"
    assert guest.err(f"{D}.write", root, b"x", 0) == "bad-descriptor"
    assert guest.err(f"{D}.set-size", root, 0) == "bad-descriptor"
    assert guest.err(f"{D}.read-directory", file) == "not-directory"
    assert guest.err(f"{D}.stat-at", file, [], ".") == "not-directory"
    assert guest.err(f"{D}.open-at", file, [], "x", [], ["read"]) == "not-directory"


@pytest.mark.parametrize(
    ("open_flags", "flags", "expected"),
    [
        ([], [], ["read"]),
        ([], ["read"], ["read"]),
        ([], ["write"], ["write"]),
        (["exclusive"], [], ["read"]),
        ([], ["read", "write", "data-integrity-sync"], ["read", "write", "data-integrity-sync"]),
    ],
)
def test_a_descriptor_says_how_it_was_opened(guest, root, open_flags, flags, expected):
    create(guest, root, "a")
    file = guest.ok(f"{D}.open-at", root, [], "a", open_flags, flags)
    assert guest.ok(f"{D}.get-flags", file) == expected
    assert guest.ok(f"{D}.get-type", file) == "regular-file"


def test_what_a_descriptor_has_made_it_may_write(guest, root):
    for name, flags, expected in (("a", [], READ_WRITE), ("b", ["write"], ["write"])):
        file = guest.ok(f"{D}.open-at", root, [], name, ["create"], flags)
        assert guest.ok(f"{D}.get-flags", file) == expected
    again = guest.ok(f"{D}.open-at", root, [], "a", ["create"], ["read"])
    assert guest.ok(f"{D}.get-flags", again) == ["read"]


def test_a_directory_below_the_root_can_be_changed_through_its_descriptor(guest, root):
    guest.ok(f"{D}.create-directory-at", root, "dir")
    directory = guest.ok(f"{D}.open-at", root, [], "dir", ["directory"], ["read"])
    create(guest, directory, "a", b"x")
    guest.ok(f"{D}.rename-at", directory, "a", root, "b")
    assert guest.err(f"{D}.create-directory-at", directory, "../c") == "not-permitted"
    assert guest.ok(f"{D}.stat-at", root, [], "b")["size"] == 1
    guest.ok(f"{D}.remove-directory-at", root, "dir")
    assert guest.err(f"{D}.open-at", directory, [], "x", ["create"], ["write"]) == "no-entry"


def test_a_listing_is_sorted_and_keeps_to_what_was_there(guest, root):
    for name in ("b", "a"):
        create(guest, root, name)
    guest.ok(f"{D}.create-directory-at", root, "dir")
    guest.ok(f"{D}.symlink-at", root, "a", "link")
    listing = guest.ok(f"{D}.read-directory", root)
    create(guest, root, "c")
    entry = f"{TYPES}.[method]directory-entry-stream.read-directory-entry"
    seen = []
    while (found := guest.ok(entry, listing)) is not None:
        seen.append((found["name"], found["type"]))
    assert seen == [
        ("a", "regular-file"),
        ("b", "regular-file"),
        ("dir", "directory"),
        ("link", "symbolic-link"),
    ]
    assert guest.ok(entry, listing) is None
    guest.drop(TYPES, "directory-entry-stream", listing)


def test_stat_tells_kind_size_links_and_times(guest, root):
    file = create(guest, root, "a", b"abc")
    guest.ok(f"{D}.link-at", root, [], "a", root, "b")
    stat = guest.ok(f"{D}.stat", file)
    assert (stat["type"], stat["size"], stat["link-count"]) == ("regular-file", 3, 2)
    assert stat == guest.ok(f"{D}.stat-at", root, [], "b")
    made, changed = stat["data-access-timestamp"], stat["status-change-timestamp"]
    assert made["seconds"] == CREATED_NS // 10**9
    assert made["nanoseconds"] < changed["nanoseconds"] <= 1_000 * len(guest.calls)


def test_symbolic_links_are_followed_when_asked(guest, root):
    create(guest, root, "a", b"abc")
    guest.ok(f"{D}.symlink-at", root, "a", "link")
    assert guest.ok(f"{D}.stat-at", root, [], "link")["type"] == "symbolic-link"
    assert guest.ok(f"{D}.stat-at", root, ["symlink-follow"], "link")["size"] == 3
    assert guest.ok(f"{D}.readlink-at", root, "link") == "a"
    assert guest.err(f"{D}.open-at", root, [], "link", [], ["read"]) == "loop"
    assert guest.err(f"{D}.symlink-at", root, "/a", "other") == "not-permitted"
    guest.ok(f"{D}.link-at", root, ["symlink-follow"], "link", root, "hard")
    assert guest.ok(f"{D}.stat-at", root, [], "hard")["type"] == "regular-file"
    file = open_at(guest, root, "link", "read")
    assert guest.ok(f"{D}.metadata-hash", file) == guest.ok(
        f"{D}.metadata-hash-at", root, ["symlink-follow"], "link"
    )


def test_times_can_be_set(guest, root):
    file = create(guest, root, "a")
    before = guest.ok(f"{D}.stat", file)
    at = {"seconds": 42, "nanoseconds": 7}
    guest.ok(f"{D}.set-times", file, Variant("timestamp", at), NO_CHANGE)
    stat = guest.ok(f"{D}.stat", file)
    assert stat["data-access-timestamp"] == at
    assert stat["data-modification-timestamp"] == before["data-modification-timestamp"]
    guest.ok(f"{D}.set-times-at", root, [], "a", NO_CHANGE, NOW)
    stat = guest.ok(f"{D}.stat", file)
    assert stat["data-modification-timestamp"] == stat["status-change-timestamp"]
    late = Variant("timestamp", {"seconds": (1 << 64) - 1, "nanoseconds": 999_999_999})
    guest.ok(f"{D}.set-times", file, late, late)
    assert guest.ok(f"{D}.stat", file)["data-access-timestamp"] == late.payload
    wrong = Variant("timestamp", {"seconds": 0, "nanoseconds": 1_000_000_000})
    assert guest.err(f"{D}.set-times", file, wrong, NOW) == "invalid"


def test_a_metadata_hash_tells_files_apart_and_outlives_a_change(guest, root):
    first = create(guest, root, "a")
    second = create(guest, root, "b")
    known = guest.ok(f"{D}.metadata-hash", first)
    assert known != guest.ok(f"{D}.metadata-hash", second)
    guest.ok(f"{D}.write", first, b"x", 0)
    guest.ok(f"{D}.rename-at", root, "a", root, "c")
    assert guest.ok(f"{D}.metadata-hash-at", root, [], "c") == known
    assert guest.err(f"{D}.metadata-hash-at", root, [], "a") == "no-entry"


def test_advice_and_sync_have_nothing_to_do(guest, root):
    file = create(guest, root, "a")
    guest.ok(f"{D}.advise", file, 0, 10, "will-need")
    assert guest.err(f"{D}.advise", file, 0, 1 << 63, "normal") == "invalid"
    guest.ok(f"{D}.sync", file)
    guest.ok(f"{D}.sync-data", file)
    guest.ok(f"{D}.sync", root)


def test_removing_says_why_not(guest, root):
    create(guest, root, "a")
    guest.ok(f"{D}.create-directory-at", root, "dir")
    create(guest, root, "dir/x")
    assert guest.err(f"{D}.create-directory-at", root, "dir") == "exist"
    assert guest.err(f"{D}.remove-directory-at", root, "dir") == "not-empty"
    assert guest.err(f"{D}.remove-directory-at", root, "a") == "not-directory"
    assert guest.err(f"{D}.unlink-file-at", root, "dir") == "is-directory"
    assert guest.err(f"{D}.unlink-file-at", root, "z") == "no-entry"
    assert guest.err(f"{D}.rename-at", root, "dir", root, "dir/y") == "invalid"
    guest.ok(f"{D}.unlink-file-at", root, "dir/x")
    guest.ok(f"{D}.remove-directory-at", root, "dir")


def test_a_dropped_descriptor_lets_go_of_an_unlinked_file(guest, root):
    files = guest.state.files
    file = create(guest, root, "a", b"abc")
    source = guest.ok(f"{D}.read-via-stream", file, 0)
    out = guest.ok(f"{D}.append-via-stream", file)
    guest.ok(f"{D}.unlink-file-at", root, "a")
    guest.drop(TYPES, "descriptor", file)
    assert files.used_bytes == 3
    guest.drop("wasi:io/streams", "output-stream", out)
    assert guest.ok(f"{IN}.read", source, 10) == b"abc"
    guest.drop("wasi:io/streams", "input-stream", source)
    assert files.used_bytes == 0
    guest.drop(TYPES, "descriptor", root)
    assert len(guest.state.handles) == 0


def test_an_initial_file_that_is_read_only_cannot_be_written(make_guest):
    def files():
        tree = FileTree(FileLimits(), created_ns=CREATED_NS)
        tree.add_file("/etc/config", b"x=1", writable=False, now_ns=CREATED_NS)
        return tree

    guest = make_guest(files)
    root = root_of(guest)
    file = open_at(guest, root, "etc/config", "read")
    assert guest.ok(f"{D}.read", file, 10, 0) == (b"x=1", True)
    refused = guest.err(f"{D}.open-at", root, [], "etc/config", [], ["write"])
    assert refused == "access"
    assert guest.err(f"{D}.open-at", root, [], "etc/config", ["truncate"], []) == "access"
    assert guest.err(f"{D}.set-times", file, NOW, NOW) == "not-permitted"
