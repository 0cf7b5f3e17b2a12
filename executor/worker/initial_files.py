"""The files that every new worker of a revision starts with."""

from collections.abc import Callable
from functools import lru_cache

from executor.services.components import read_content
from executor.services.files import FileTree
from executor.services.limits import file_limits
from executor.worker.revision import Revision
from executor.worker.status import Status
from oplog.engine import Engine


def initial_files(engine: Engine) -> Callable[[Revision, Status], FileTree]:
    """Makes the trees that workers begin with. Contents are read once and shared."""
    content = lru_cache(maxsize=256)(lambda digest: read_content(engine, digest))

    def make(revision: Revision, status: Status) -> FileTree:
        tree = FileTree(file_limits(status.limits), created_ns=status.created_at)
        for file in revision.row.files:
            tree.add_file(
                file.path, content(file.digest), writable=file.writable, now_ns=status.created_at
            )
        return tree

    return make
