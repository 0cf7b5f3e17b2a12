"""Paths and numbers that no guest in its right mind passes, to every function of wasi:filesystem.

Arguments are made from the WIT types, paths from tricks. Whatever is asked: the answer is of its
type (an error is one of `error-code`), what lies outside of the directories that were passed keeps
its names, what is opened lies inside them, the tree keeps its invariants, no file of this machine
is touched, and a replay of the same calls makes the same tree.
"""

import random
import sys
import unicodedata
from contextlib import contextmanager

import pytest

from executor.host.files import Descriptor, Listing
from executor.host.streams import InputStream, IoError, OutputStream
from executor.services.files_nodes import (
    NAME_BYTES_MAX,
    OFFSET_MAX,
    ROOT,
    DirectoryNode,
    FileNode,
    SymlinkNode,
)
from executor.wasm.types import BorrowType, EnumType, FlagsType, ListType, VariantType
from executor.wasm.values import Err, Ok, Variant
from tests.support.host_calls import TABLES

SEEDS = range(40)
STEPS = 200
TYPES = "wasi:filesystem/types"
D = f"{TYPES}.[method]descriptor"
STREAMS = "wasi:io/streams"
HOST_EVENTS = ("open", "os.", "shutil.", "socket.", "subprocess.", "pathlib.", "glob.")
NAMING = tuple(
    f"[method]descriptor.{name}-at"
    for name in ("open", "create-directory", "rename", "rename", "symlink", "link")
)
U64_MAX = (1 << 64) - 1
HELD_MAX = 24

LONGEST = "n" * NAME_BYTES_MAX
COMPOSED, DECOMPOSED = (unicodedata.normalize(form, "é") for form in ("NFC", "NFD"))
NAMES = (
    *("a", "b", "c", "A", " ", "-", "...", "a b", "~", "*", "\\", "c:", "\x1b[2J", "\n", "\u202e"),
    *(COMPOSED, DECOMPOSED, "\ufb01", "\U0001f5ff", "\ufeff", "con", ".a"),
    *(LONGEST, LONGEST + "x", "é" * 127, "é" * 128, "", ".", "..", "a\0", "\0"),
)
PATHS = (
    *("/", "//", "/etc/passwd", "/proc/self/root", "../../../../../../etc", "./..", "a/../..", "."),
    *("a/./../b", "a//b", "a/", "b/.", "b/..", "..a", "a" * 5_000, "a/" * 2_048),
    *("x/" * 2_047 + "x", "file:///etc/passwd", "\\\\?\\c:\\", "a/b/../../c", " /a", "\t"),
)
NUMBERS = (0, 1, 2, 7, 4_096, 65_536, 65_537, 1 << 31, 1 << 32, OFFSET_MAX, OFFSET_MAX + 1, U64_MAX)

touched: list[str] | None = None


def note(event, arguments):
    if touched is not None and event.startswith(HOST_EVENTS):
        touched.append(f"{event} {arguments}")


sys.addaudithook(note)


@contextmanager
def machine_untouched():
    global touched
    touched = []
    try:
        yield
        assert touched == []
    finally:
        touched = None


def handles(guest, kind):
    held = guest.state.handles._objects
    return [number for number, one in held.items() if isinstance(one, kind)]


KINDS = {
    "descriptor": Descriptor,
    "directory-entry-stream": Listing,
    "input-stream": InputStream,
    "output-stream": OutputStream,
    "error": IoError,
}


class Fuzz:
    def __init__(self, guest, seed):
        self.guest = guest
        self.rng = random.Random(seed)
        self.answers = {}

    def name(self):
        known = [
            name
            for node in self.nodes.values()
            if isinstance(node, DirectoryNode)
            for name in node.entries
        ]
        return self.rng.choice(known if known and self.rng.random() < 0.75 else NAMES)

    @property
    def nodes(self):
        return self.guest.state.files._nodes

    def path(self):
        if self.rng.random() < 0.1:
            return self.rng.choice(PATHS)
        if self.rng.random() < 0.5:
            path = self.walk()
        else:
            path = "/".join(self.name() for _ in range(self.rng.choice((1, 1, 1, 2, 2, 3, 6))))
        return path + self.rng.choice(("",) * 8 + ("/", "//", "/."))

    def walk(self):
        """Down from the root, by names that are there, and maybe one more."""
        names = []
        node = self.nodes[ROOT]
        while isinstance(node, DirectoryNode) and node.entries and self.rng.random() < 0.7:
            name = self.rng.choice(list(node.entries))
            names.append(name)
            node = self.nodes[node.entries[name]]
        if not names or self.rng.random() < 0.3:
            names.append(self.name())
        return "/".join(names)

    def value(self, wit_type):
        """A value of the type, or None if the guest holds no such resource."""
        rng = self.rng
        match wit_type:
            case BorrowType(resource=resource):
                held = handles(self.guest, KINDS[resource])
                return rng.choice(held) if held else None
            case FlagsType(flags=flags):
                return [flag for flag in flags if rng.random() < 0.35]
            case EnumType(cases=cases):
                return rng.choice(cases)
            case VariantType(cases=cases):
                case, payload = rng.choice(cases)
                if payload is None:
                    return Variant(case)
                nanoseconds = rng.choice((0, 999_999_999, 1_000_000_000, (1 << 32) - 1))
                return Variant(case, {"seconds": rng.choice(NUMBERS), "nanoseconds": nanoseconds})
            case ListType():
                return rng.randbytes(rng.choice((0, 1, 100, 5_000)))
        match wit_type.name:
            case "string":
                return self.path()
            case "u64":
                return rng.choice(NUMBERS)
        raise AssertionError(wit_type)

    def step(self):
        interface = self.rng.choice((TYPES, TYPES, TYPES, TYPES, STREAMS))
        function = self.rng.choice(tuple(TABLES[interface].wit.functions))
        if self.rng.random() < 0.3:
            interface, function = TYPES, self.rng.choice(NAMING)
        params = TABLES[interface].wit.functions[function].params
        arguments = [self.value(wit_type) for _, wit_type in params]
        if None in arguments or too_much(function, arguments):
            return
        passed = [
            held.inode
            for number in arguments
            if type(number) is int
            and isinstance(held := self.guest.state.handles._objects.get(number), Descriptor)
        ]
        before = self.outside(passed)
        with machine_untouched():
            answer = self.guest.call(f"{interface}.{function}", *arguments)
        if isinstance(answer, Err) and isinstance(answer.value, str):
            self.answers[answer.value] = self.answers.get(answer.value, 0) + 1
        if isinstance(answer, Ok):
            self.answers["ok"] = self.answers.get("ok", 0) + 1
        after = {directory: dict(self.nodes[directory].entries) for directory in before}
        assert after == before, (function, arguments)
        if function.endswith("open-at") and isinstance(answer, Ok):
            opened = self.guest.state.handles.get(answer.value, Descriptor).inode
            assert opened in self.inside(passed), (function, arguments)
        check_tree(self.guest)
        self.drop_some()

    def drop_some(self):
        for resource, kind in KINDS.items():
            held = handles(self.guest, kind)
            while len(held) > (HELD_MAX if resource == "descriptor" else 3):
                number = held.pop(self.rng.randrange(1, len(held)))  # the root stays
                interface = TYPES if resource in TABLES[TYPES].drops else STREAMS
                if resource == "error":
                    interface = "wasi:io/error"
                self.guest.drop(interface, resource, number)

    def inside(self, inodes):
        found = set()
        left = list(inodes)
        while left:
            inode = left.pop()
            if inode in found:
                continue
            found.add(inode)
            node = self.nodes[inode]
            if isinstance(node, DirectoryNode):
                left += node.entries.values()
        return found

    def outside(self, inodes):
        """The names in every directory that none of these leads to."""
        inside = self.inside(inodes)
        return {
            inode: dict(node.entries)
            for inode, node in self.nodes.items()
            if isinstance(node, DirectoryNode) and inode not in inside
        }


def too_much(function, arguments):
    """Whether the call is a trap by the definition of `wasi:io/streams`, or waits."""
    name = function.rpartition(".")[2]
    if name in {"write", "write-zeroes", "blocking-write-and-flush"} or "zeroes" in name:
        size = arguments[-1] if type(arguments[-1]) is int else len(arguments[-1])
        return size > 4_096
    return False


def check_tree(guest):
    files = guest.state.files
    nodes = files._nodes
    names = dict.fromkeys(nodes, 0)
    for inode, node in nodes.items():
        if isinstance(node, DirectoryNode):
            assert all(nodes[entry].inode == entry for entry in node.entries.values())
            for name, entry in node.entries.items():
                assert name not in {"", ".", ".."}
                assert not set(name) & {"/", "\0"}
                assert len(name.encode()) <= NAME_BYTES_MAX
                names[entry] += 1
                if isinstance(nodes[entry], DirectoryNode):
                    assert nodes[entry].parent == inode
    held = {}
    for opened in guest.state.handles._objects.values():
        inode = getattr(opened, "inode", None) or getattr(opened, "_inode", None)
        if inode:
            held[inode] = held.get(inode, 0) + 1
    for inode, node in nodes.items():
        assert node.links == names[inode] + (inode == ROOT)
        assert node.opens == held.get(inode, 0)
        assert node.links or node.opens
        if isinstance(node, DirectoryNode) and not node.links:
            assert not node.entries
        if isinstance(node, SymlinkNode):
            assert not node.target.startswith("/")
        if isinstance(node, FileNode):
            assert len(node.content) <= files.limits.bytes_max
        assert depth(nodes, inode) < len(nodes) + 1
    assert files.used_entries == sum(names.values()) <= files.limits.entries_max
    assert files.used_bytes == sum(map(files.size, nodes)) <= files.limits.bytes_max


def depth(nodes, inode):
    """How far it is to the root; endless if directories form a circle."""
    count = 0
    while isinstance(node := nodes.get(inode), DirectoryNode) and node.parent and node.links:
        inode = node.parent
        count += 1
        assert count <= len(nodes)
    return count


def fuzz(guest, seed, steps=STEPS):
    run = Fuzz(guest, seed)
    ((root, _),) = guest.call("wasi:filesystem/preopens.get-directories")
    for directory in ("a", "a/b", "c"):
        guest.ok(f"{D}.create-directory-at", root, directory)
    for target, link in (("loop", "loop"), ("..", "a/up"), ("../..", "a/out"), ("a/b", "c/in")):
        guest.ok(f"{D}.symlink-at", root, target, link)
    guest.ok(f"{D}.open-at", root, [], "a/file", ["create"], ["read", "write"])
    for _ in range(steps):
        run.step()
    return run.answers


@pytest.mark.parametrize("seed", SEEDS)
def test_no_trick_leads_out_of_the_tree_or_to_an_error_that_wasi_does_not_have(guest, seed):
    print("seed", seed)
    assert fuzz(guest, seed)["ok"] > 10


def test_the_tricks_meet_every_refusal_of_the_tree(make_guest):
    answers = {}
    for seed in range(12):
        for answer, count in fuzz(make_guest(), 1_000 + seed).items():
            answers[answer] = answers.get(answer, 0) + count
    assert answers.keys() >= {
        *("ok", "bad-descriptor", "exist", "file-too-large", "invalid", "is-directory", "loop"),
        *("name-too-long", "no-entry", "not-directory", "not-empty", "not-permitted", "quota"),
    }, answers


def test_forms_of_a_name_are_names_of_their_own(guest):
    ((root, _),) = guest.call("wasi:filesystem/preopens.get-directories")
    create = f"{D}.create-directory-at"
    for name in (COMPOSED, DECOMPOSED, "A", "a", "\ufb01", "fi", "a ", "a."):
        assert guest.call(create, root, name) == Ok()
    assert guest.call(create, root, DECOMPOSED) == Err("exist")
