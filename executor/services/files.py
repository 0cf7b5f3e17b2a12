"""A worker's files: a tree in memory, rebuilt by replay, with no way to the machine's own files.

Everything is deterministic: inode numbers are allotted in order, listings are sorted, every time is
the caller's. The same operations in the same order make the same tree.

Invariants
- A node lives as long as a name leads to it or the guest holds it open (`retain`, `release`).
- `used_bytes` is the content of all living nodes, `used_entries` the names in all directories; an
  operation that would pass a limit is refused with `quota` before it changes anything.
- A directory that was removed while open is empty, and nothing can be made in it.

Used on the worker's lane only; never blocks. All methods raise FileError with the error-code that
`wasi:filesystem/types` has for it, where POSIX has the corresponding errno.
"""

import msgspec

from executor.services.files_nodes import (
    LINKS_MAX,
    OFFSET_MAX,
    ROOT,
    AnyNode,
    DirectoryNode,
    FileError,
    FileLimits,
    FileNode,
    FileStat,
    Kind,
    SymlinkNode,
    kind_of,
    size_of,
)
from executor.services.files_paths import Place, check_path, locate


class OpenMode(msgspec.Struct, frozen=True, kw_only=True):
    """How `open_at` opens."""

    create: bool = False
    """Make an empty file if nothing is there."""
    exclusive: bool = False
    """With `create`: refuse what is there."""
    directory: bool = False
    """Refuse what is no directory."""
    truncate: bool = False
    write: bool = False
    follow: bool = False
    """Follow a symbolic link at the end of the path."""


class FileTree:
    """The root is inode `ROOT`; a directory is named by its inode, a file in it by a path."""

    def __init__(self, limits: FileLimits | None = None, *, created_ns: int = 0) -> None:
        self.limits = limits or FileLimits()
        self.used_bytes = 0
        self.used_entries = 0
        self._last_inode = ROOT
        self._nodes: dict[int, AnyNode] = {
            ROOT: DirectoryNode(
                inode=ROOT,
                links=1,
                accessed_ns=created_ns,
                modified_ns=created_ns,
                changed_ns=created_ns,
                entries={},
                parent=0,
            )
        }

    # -- before the guest starts -----------------------------------------------------------------

    def add_file(self, path: str, content: bytes, *, writable: bool, now_ns: int) -> None:
        """An initial file at `path` from the root, with the directories on the way to it.

        Raises FileError: something is there, the path is not a file's, or the limits are passed.
        """
        *directories, name = [part for part in path.split("/") if part] or [""]
        base = ROOT
        for directory in directories:
            place = locate(self._nodes, base, directory, follow=False)
            if place.inode is None:
                self.create_directory_at(base, directory, now_ns)
                place = locate(self._nodes, base, directory, follow=False)
            assert place.inode is not None
            base = place.inode
        mode = OpenMode(create=True, exclusive=True, write=True)
        inode, _ = self.open_at(base, name, mode, now_ns)
        self.write(inode, 0, content, now_ns)
        self._file(inode).writable = writable
        self.release(inode)

    # -- what the guest holds --------------------------------------------------------------------

    def retain(self, inode: int) -> int:
        """The guest holds the node once more, by a descriptor or a stream; returns `inode`."""
        self._nodes[inode].opens += 1
        return inode

    def release(self, inode: int) -> None:
        """The guest holds it once less; a node that nothing leads to any more is gone."""
        node = self._nodes[inode]
        node.opens -= 1
        self._collect(node)

    def open_at(self, base: int, path: str, mode: OpenMode, now_ns: int) -> tuple[int, bool]:
        """The inode, retained, and whether it was made by this call."""
        if mode.directory and (mode.create or mode.exclusive or mode.truncate):
            raise FileError("invalid")
        follow = mode.follow and not (mode.create and mode.exclusive)
        place = locate(self._nodes, base, path, follow=follow)
        if place.inode is None:
            if not mode.create:
                raise FileError("no-entry")
            return self.retain(self._create_file(place, now_ns)), True
        if mode.create and mode.exclusive:
            raise FileError("exist")
        match self._nodes[place.inode]:
            case SymlinkNode():
                raise FileError("loop")
            case DirectoryNode():
                if mode.write or mode.truncate or mode.create:
                    raise FileError("is-directory")
            case FileNode(writable=writable):
                if mode.directory:
                    raise FileError("not-directory")
                if not writable and (mode.write or mode.truncate):
                    raise FileError("access")
                if mode.truncate:
                    self.set_size(place.inode, 0, now_ns)
        return self.retain(place.inode), False

    # -- files -----------------------------------------------------------------------------------

    def read(self, inode: int, offset: int, count: int) -> bytes:
        """At most `count` bytes from `offset`; none at or after the end of the file."""
        if offset > OFFSET_MAX:
            raise FileError("invalid")
        return bytes(self._file(inode).content[offset : offset + count])

    def write(self, inode: int, offset: int, contents: bytes, now_ns: int) -> None:
        """All of the bytes at `offset`; what lies between the file's end and there is zero."""
        node = self._file(inode)
        if not contents:
            return
        end = offset + len(contents)
        self._resize(node, max(end, len(node.content)))
        node.content[offset:end] = contents
        node.modified_ns = node.changed_ns = now_ns

    def set_size(self, inode: int, size: int, now_ns: int) -> None:
        """Cuts the file, or extends it with zeros."""
        node = self._file(inode)
        self._resize(node, size)
        node.modified_ns = node.changed_ns = now_ns

    def size(self, inode: int) -> int:
        return size_of(self._nodes[inode])

    # -- attributes ------------------------------------------------------------------------------

    def lookup(self, base: int, path: str, *, follow: bool) -> int:
        """The inode of what is at `path`; it is not retained."""
        inode = locate(self._nodes, base, path, follow=follow).inode
        if inode is None:
            raise FileError("no-entry")
        return inode

    def kind(self, inode: int) -> Kind:
        return kind_of(self._nodes[inode])

    def stat(self, inode: int) -> FileStat:
        node = self._nodes[inode]
        return FileStat(
            inode=inode,
            kind=kind_of(node),
            links=node.links,
            size=size_of(node),
            accessed_ns=node.accessed_ns,
            modified_ns=node.modified_ns,
            changed_ns=node.changed_ns,
            writable=not isinstance(node, FileNode) or node.writable,
            target=node.target if isinstance(node, SymlinkNode) else None,
        )

    def set_times(
        self, inode: int, accessed_ns: int | None, modified_ns: int | None, now_ns: int
    ) -> None:
        """None leaves a time as it is."""
        node = self._nodes[inode]
        if isinstance(node, FileNode) and not node.writable:
            raise FileError("not-permitted")
        if accessed_ns is not None:
            node.accessed_ns = accessed_ns
        if modified_ns is not None:
            node.modified_ns = modified_ns
        node.changed_ns = now_ns

    # -- directories -----------------------------------------------------------------------------

    def listing(self, inode: int) -> list[tuple[str, Kind]]:
        """Names and kinds in a directory, sorted by name, without `.` and `..`."""
        node = self._nodes[inode]
        if not isinstance(node, DirectoryNode):
            raise FileError("not-directory")
        return [(name, self.kind(entry)) for name, entry in sorted(node.entries.items())]

    def create_directory_at(self, base: int, path: str, now_ns: int) -> None:
        place = locate(self._nodes, base, path, follow=False)
        if place.inode is not None or place.linked:
            raise FileError("exist")
        self._check_room(place.directory)
        node = DirectoryNode(
            inode=self._next_inode(),
            accessed_ns=now_ns,
            modified_ns=now_ns,
            changed_ns=now_ns,
            entries={},
            parent=place.directory,
        )
        self._nodes[node.inode] = node
        self._enter(place, node, now_ns)

    def remove_directory_at(self, base: int, path: str, now_ns: int) -> None:
        place = locate(self._nodes, base, path, follow=False)
        node = self._found(place)
        if not place.name:
            raise FileError("invalid")
        if place.linked or not isinstance(node, DirectoryNode):
            raise FileError("not-directory")
        if node.entries:
            raise FileError("not-empty")
        self._remove(place, now_ns)

    def unlink_at(self, base: int, path: str, now_ns: int) -> None:
        """Takes a name from its directory; it may not be a directory's."""
        place = locate(self._nodes, base, path, follow=False)
        node = self._found(place)
        if place.linked:
            raise FileError("not-directory")
        if isinstance(node, DirectoryNode):
            raise FileError("is-directory")
        self._remove(place, now_ns)

    def link_at(self, old: int, base: int, path: str, now_ns: int) -> None:
        """One more name, `path` from `base`, for what `lookup` found as `old`."""
        node = self._nodes[old]
        place = self._vacant(base, path)
        if isinstance(node, DirectoryNode):
            raise FileError("not-permitted")
        if node.links >= LINKS_MAX:
            raise FileError("too-many-links")
        self._check_room(place.directory)
        self._enter(place, node, now_ns)

    def symlink_at(self, target: str, base: int, path: str, now_ns: int) -> None:
        """A symbolic link at `path` that reads `target`, which need not exist."""
        check_path(target)
        if target.startswith("/"):
            raise FileError("not-permitted")
        place = self._vacant(base, path)
        self._check_room(place.directory)
        self._charge(len(target.encode()))
        node = SymlinkNode(
            inode=self._next_inode(),
            accessed_ns=now_ns,
            modified_ns=now_ns,
            changed_ns=now_ns,
            target=target,
        )
        self._nodes[node.inode] = node
        self._enter(place, node, now_ns)

    def readlink_at(self, base: int, path: str) -> str:
        node = self._nodes[self.lookup(base, path, follow=False)]
        if not isinstance(node, SymlinkNode):
            raise FileError("invalid")
        return node.target

    def rename_at(
        self, old_base: int, old_path: str, new_base: int, new_path: str, now_ns: int
    ) -> None:
        """Moves a name; what had the new name is replaced if it is of the same sort, and empty."""
        source = locate(self._nodes, old_base, old_path, follow=False)
        target = locate(self._nodes, new_base, new_path, follow=False)
        node = self._found(source)
        if not source.name or not target.name:
            raise FileError("invalid")
        if source.linked or target.linked:
            raise FileError("not-directory")
        if isinstance(node, DirectoryNode) and self._within(target.directory, node.inode):
            raise FileError("invalid")
        if target.inode == node.inode:
            return
        self._check_replaceable(node, target)
        if self._directory(target.directory).links == 0:
            raise FileError("no-entry")
        if target.inode is not None:
            self._remove(target, now_ns)
        node.links += 1
        self._remove(source, now_ns)
        node.links -= 1
        self._enter(target, node, now_ns)

    # -- rules and bookkeeping -------------------------------------------------------------------

    def _check_replaceable(self, node: AnyNode, target: Place) -> None:
        existing = None if target.inode is None else self._nodes[target.inode]
        if isinstance(node, DirectoryNode):
            if existing is None:
                return
            if not isinstance(existing, DirectoryNode):
                raise FileError("not-directory")
            if existing.entries:
                raise FileError("not-empty")
        elif isinstance(existing, DirectoryNode):
            raise FileError("is-directory")
        elif target.slash:
            raise FileError("not-directory")

    def _within(self, directory: int, ancestor: int) -> bool:
        while directory:
            if directory == ancestor:
                return True
            directory = self._directory(directory).parent
        return False

    def _file(self, inode: int) -> FileNode:
        node = self._nodes[inode]
        if isinstance(node, DirectoryNode):
            raise FileError("is-directory")
        assert isinstance(node, FileNode)
        return node

    def _directory(self, inode: int) -> DirectoryNode:
        node = self._nodes[inode]
        assert isinstance(node, DirectoryNode)
        return node

    def _found(self, place: Place) -> AnyNode:
        if place.inode is None:
            raise FileError("no-entry")
        return self._nodes[place.inode]

    def _vacant(self, base: int, path: str) -> Place:
        """The place of a name to be given to something that is no directory."""
        place = locate(self._nodes, base, path, follow=False)
        if place.inode is not None:
            raise FileError("exist")
        if place.slash:
            raise FileError("no-entry")
        return place

    def _create_file(self, place: Place, now_ns: int) -> int:
        if place.slash:
            raise FileError("is-directory")
        self._check_room(place.directory)
        node = FileNode(
            inode=self._next_inode(),
            accessed_ns=now_ns,
            modified_ns=now_ns,
            changed_ns=now_ns,
            content=bytearray(),
        )
        self._nodes[node.inode] = node
        self._enter(place, node, now_ns)
        return node.inode

    def _next_inode(self) -> int:
        self._last_inode += 1
        return self._last_inode

    def _check_room(self, directory: int) -> None:
        """Whether one more name has room in the directory."""
        if self._directory(directory).links == 0:
            raise FileError("no-entry")
        if self.used_entries >= self.limits.entries_max:
            raise FileError("quota")

    def _charge(self, count: int) -> None:
        if self.used_bytes + count > self.limits.bytes_max:
            raise FileError("quota")
        self.used_bytes += count

    def _resize(self, node: FileNode, size: int) -> None:
        if size > OFFSET_MAX:
            raise FileError("file-too-large")
        growth = size - len(node.content)
        self._charge(growth)
        if growth >= 0:
            node.content.extend(bytes(growth))
        else:
            del node.content[size:]

    def _enter(self, place: Place, node: AnyNode, now_ns: int) -> None:
        directory = self._directory(place.directory)
        directory.entries[place.name] = node.inode
        directory.modified_ns = directory.changed_ns = now_ns
        node.links += 1
        node.changed_ns = now_ns
        if isinstance(node, DirectoryNode):
            node.parent = place.directory
        self.used_entries += 1

    def _remove(self, place: Place, now_ns: int) -> None:
        directory = self._directory(place.directory)
        node = self._nodes[directory.entries.pop(place.name)]
        directory.modified_ns = directory.changed_ns = now_ns
        node.links -= 1
        node.changed_ns = now_ns
        self.used_entries -= 1
        self._collect(node)

    def _collect(self, node: AnyNode) -> None:
        if not node.links and not node.opens:
            self.used_bytes -= size_of(node)
            del self._nodes[node.inode]
