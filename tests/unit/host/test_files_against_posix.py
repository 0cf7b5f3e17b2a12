"""Random operations on the tree and on a directory of this machine: both must do the same."""

import errno
import os
import random
import stat as modes

import pytest

from executor.services.files import FileTree, OpenMode
from executor.services.files_nodes import ROOT, FileError, FileLimits
from tests.support.host_calls import tree_of

CODES = {
    errno.EEXIST: "exist",
    errno.EINVAL: "invalid",
    errno.EISDIR: "is-directory",
    errno.ELOOP: "loop",
    errno.ENOENT: "no-entry",
    errno.ENOTDIR: "not-directory",
    errno.ENOTEMPTY: "not-empty",
    errno.EPERM: "not-permitted",
    errno.EBUSY: "busy",
    errno.ENAMETOOLONG: "name-too-long",
}
OWN_PARENT = ("is-directory", "not-empty")
"""A file is to replace the directory that it is in: POSIX names the first, Linux the second."""
TWO_PATHS = {"rename", "link", "symlink"}


def is_plain(step):
    """Whether no path of the step ends in a slash or a dot.

    If one does, several reasons to refuse may apply at once, and which of them is named is not the
    same on all systems.
    """
    kind, path, other, _ = step
    paths = [path, other] if kind in TWO_PATHS else [path]
    return not any(path.endswith(("/", ".")) for path in paths)


def random_path(rng):
    names = [rng.choice(["a", "b", "c", "d", ".", ".."]) for _ in range(rng.randint(1, 3))]
    return "/".join(names) + ("/" if rng.random() < 0.15 else "")


def random_step(rng):
    kind = rng.choice(
        [
            "write",
            "write",
            "mkdir",
            "rmdir",
            "unlink",
            "rename",
            "rename",
            "link",
            "symlink",
            "open",
        ]
    )
    return kind, random_path(rng), random_path(rng), rng.randbytes(rng.randint(0, 5))


def on_tree(files, step, now_ns):
    kind, path, other, contents = step
    match kind:
        case "write":
            mode = OpenMode(create=True, write=True, truncate=True, follow=True)
            inode, _ = files.open_at(ROOT, path, mode, now_ns)
            files.write(inode, 0, contents, now_ns)
            files.release(inode)
        case "open":
            inode, _ = files.open_at(ROOT, path, OpenMode(), now_ns)
            files.release(inode)
        case "mkdir":
            files.create_directory_at(ROOT, path, now_ns)
        case "rmdir":
            files.remove_directory_at(ROOT, path, now_ns)
        case "unlink":
            files.unlink_at(ROOT, path, now_ns)
        case "rename":
            files.rename_at(ROOT, path, ROOT, other, now_ns)
        case "link":
            files.link_at(files.lookup(ROOT, path, follow=False), ROOT, other, now_ns)
        case "symlink":
            files.symlink_at(path, ROOT, other, now_ns)


def on_machine(root, step):
    kind, path, other, contents = step
    match kind:
        case "write":
            file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, dir_fd=root)
            os.write(file, contents)
            os.close(file)
        case "open":
            os.close(os.open(path, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=root))
        case "mkdir":
            os.mkdir(path, dir_fd=root)
        case "rmdir":
            os.rmdir(path, dir_fd=root)
        case "unlink":
            os.unlink(path, dir_fd=root)
        case "rename":
            os.rename(path, other, src_dir_fd=root, dst_dir_fd=root)
        case "link":
            os.link(path, other, src_dir_fd=root, dst_dir_fd=root, follow_symlinks=False)
        case "symlink":
            os.symlink(path, other, dir_fd=root)


def answer(call, *arguments):
    try:
        call(*arguments)
    except FileError as refusal:
        return refusal.code
    except OSError as refusal:
        return CODES[refusal.errno]
    return "ok"


def seen_on_machine(root):
    seen = {}
    for path in root.rglob("*"):
        stat = path.lstat()
        if modes.S_ISLNK(stat.st_mode):
            target = os.readlink(path)  # noqa: PTH115 - a Path would lose a trailing slash
            found = ("symbolic-link", stat.st_nlink, target)
        elif modes.S_ISDIR(stat.st_mode):
            found = ("directory", 1, "")
        else:
            found = ("regular-file", stat.st_nlink, path.read_bytes())
        seen[str(path.relative_to(root))] = found
    return seen


def seen_on_tree(files):
    seen = {}
    for path, (stat, content) in tree_of(files).items():
        key = path.strip("/")
        if not key:
            continue
        held = files.readlink_at(ROOT, key) if stat.kind == "symbolic-link" else content
        seen[key] = (stat.kind, stat.links, held)
    return seen


@pytest.mark.parametrize("seed", range(30))
def test_the_tree_does_what_posix_does(tmp_path, seed):
    print("seed", seed)
    rng = random.Random(seed)
    files = FileTree(FileLimits())
    machine = tmp_path / "root"
    machine.mkdir()
    root = os.open(machine, os.O_RDONLY)
    answers = {}
    for number in range(400):
        step = random_step(rng)
        ours = answer(on_tree, files, step, number)
        if ours == "not-permitted":
            continue  # the machine's directory is no sandbox, and would let the path out
        theirs = answer(on_machine, root, step)
        answers[ours] = answers.get(ours, 0) + 1
        assert (ours == "ok") == (theirs == "ok"), (number, step, ours, theirs)
        agreed = ours == theirs or (ours, theirs) == OWN_PARENT
        assert agreed or not is_plain(step), (number, step, ours, theirs)
    os.close(root)
    assert seen_on_tree(files) == seen_on_machine(machine)
    assert answers["ok"] > 20, answers
    check_accounts(files)


def check_accounts(files):
    nodes = files._nodes.values()
    names = [node for node in nodes if hasattr(node, "entries")]
    assert files.used_entries == sum(len(node.entries) for node in names)
    assert files.used_bytes == sum(files.size(node.inode) for node in nodes)
    reachable = {stat.inode for stat, _ in tree_of(files).values()}
    assert reachable == set(files._nodes)


def test_the_same_operations_make_the_same_tree():
    def run():
        rng = random.Random(99)
        files = FileTree(FileLimits(bytes_max=60, entries_max=12))
        answers = [answer(on_tree, files, random_step(rng), number) for number in range(2_000)]
        check_accounts(files)
        return answers, tree_of(files)

    first = run()
    assert first == run()
    assert "quota" in first[0]
