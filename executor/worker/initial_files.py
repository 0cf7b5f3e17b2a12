"""The files that every new worker of a revision starts with."""

from collections.abc import Callable
from functools import lru_cache

from executor.services.components import read_content
from executor.services.files import FileTree
from executor.worker.revision import Revision
from oplog.engine import Engine


def initial_files(engine: Engine) -> Callable[[Revision, int], FileTree]:
    """Makes trees: `make(revision, created_at_ns)`. Contents are read once and shared."""
    content = lru_cache(maxsize=256)(lambda digest: read_content(engine, digest))

    def make(revision: Revision, created_at_ns: int) -> FileTree:
        tree = FileTree(created_ns=created_at_ns)
        for file in revision.row.files:
            tree.add_file(
                file.path, content(file.digest), writable=file.writable, now_ns=created_at_ns
            )
        return tree

    return make
