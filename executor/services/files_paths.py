"""Where a path leads, from a directory and never out of it.

Rules, as `wasi:filesystem` and POSIX have them: a path is relative (an absolute one is
not-permitted, as a path or as a link's target); `..` is taken where the walk has come to, after
links, and above the directory that it began in it is not-permitted; a trailing slash asks for a
directory, and follows a link. Each directory that the guest holds is a sandbox of its own.
"""

from collections.abc import Mapping

import msgspec

from executor.services.files_nodes import (
    NAME_BYTES_MAX,
    PATH_BYTES_MAX,
    SYMLINKS_FOLLOWED_MAX,
    AnyNode,
    DirectoryNode,
    FileError,
    FileNode,
    SymlinkNode,
)


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A name in a directory, whether something is there or not."""

    directory: int
    """The directory that the name is in."""
    name: str
    """"" if the path ends in `.` or `..`: `inode` is then a directory, and its name is unknown."""
    inode: int | None
    """What is there; None for nothing."""
    slash: bool
    """The path asks for a directory. If something is there it is one."""
    linked: bool
    """The path's last name is a symbolic link, and was followed."""


def locate(nodes: Mapping[int, AnyNode], base: int, path: str, *, follow: bool) -> Place:
    """The place that `path` names, seen from the directory `base`.

    `follow` tells whether a symbolic link at the end of the path is followed. Raises FileError:
    a directory on the way is missing or none, or the path breaks a rule of this module.
    """
    check_path(path)
    if path.startswith("/"):
        raise FileError("not-permitted")
    if not isinstance(nodes[base], DirectoryNode):
        raise FileError("not-directory")
    return _Walk(nodes, base, path, follow=follow).place()


def check_path(path: str) -> None:
    """Raises FileError if it is empty, too long, or holds a NUL."""
    if not path:
        raise FileError("no-entry")
    if "\0" in path:
        raise FileError("invalid")
    if len(path.encode()) > PATH_BYTES_MAX:
        raise FileError("name-too-long")


class _Walk:
    def __init__(self, nodes: Mapping[int, AnyNode], base: int, path: str, *, follow: bool) -> None:
        self.nodes = nodes
        self.stack = [base]
        """The directories that the walk is in, outermost first."""
        self.names = _names(path)
        """What is left of the path, last name first."""
        self.follow = follow
        self.slash = path.endswith("/")
        self.linked = False
        self.followed = 0

    def place(self) -> Place:
        while self.names:
            name = self.names.pop()
            if name == ".":
                continue
            if name == "..":
                self._leave()
                continue
            found = self._step(name)
            if found is not None:
                return found
        here = self.stack[-1]
        return self._place(here, "", here)

    def _leave(self) -> None:
        self.stack.pop()
        if not self.stack:
            raise FileError("not-permitted")

    def _step(self, name: str) -> Place | None:
        """One name further; the place, if that was the last one."""
        if len(name.encode()) > NAME_BYTES_MAX:
            raise FileError("name-too-long")
        here = self.stack[-1]
        directory = self.nodes[here]
        assert isinstance(directory, DirectoryNode)
        last = not self.names
        inode = directory.entries.get(name)
        if inode is None:
            if not last:
                raise FileError("no-entry")
            return self._place(here, name, None)
        match self.nodes[inode]:
            case DirectoryNode():
                if not last:
                    self.stack.append(inode)
                    return None
            case FileNode():
                if self.slash or not last:
                    raise FileError("not-directory")
            case SymlinkNode(target=target):
                if not last or self.follow or self.slash:
                    self._expand(target, last=last)
                    return None
        return self._place(here, name, inode)

    def _expand(self, target: str, *, last: bool) -> None:
        self.followed += 1
        if self.followed > SYMLINKS_FOLLOWED_MAX:
            raise FileError("loop")
        if last:
            self.linked = True
            self.slash = self.slash or target.endswith("/")
        self.names.extend(_names(target))

    def _place(self, directory: int, name: str, inode: int | None) -> Place:
        return Place(
            directory=directory, name=name, inode=inode, slash=self.slash, linked=self.linked
        )


def _names(path: str) -> list[str]:
    return [name for name in reversed(path.split("/")) if name]
