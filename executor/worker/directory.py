"""The committed components and workers of a store, as guests may read them.

Blocks for as long as a read of the store does, which is microseconds.
"""

from collections.abc import Mapping, Sequence

from executor.host.state import FoundWorker
from executor.services.components import find_component, read_components, read_revision
from executor.worker.public_oplogs import PublicOplogs
from executor.worker.rows import read_status, read_worker_id, sortable_name
from executor.worker.status import Status
from oplog.engine import Engine


class StoreDirectory:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.oplogs = PublicOplogs(engine)

    def component_id(self, name: str) -> str | None:
        found = find_component(self._engine, name)
        return None if found is None else found.id

    def component_name(self, component_id: str) -> str | None:
        rows = read_components(self._engine)
        return next((row.component for row in rows if row.id == component_id), None)

    def worker_id(self, component_id: str, name: str) -> bytes | None:
        component = self.component_name(component_id)
        return None if component is None else read_worker_id(self._engine, f"{component}/{name}")

    def worker(self, component: str, name: str) -> FoundWorker | None:
        worker_id = read_worker_id(self._engine, f"{component}/{name}")
        return None if worker_id is None else self._found(worker_id)

    def workers(self, component: str, after: str, limit: int) -> Sequence[FoundWorker]:
        prefix = f"{component}/"
        rows = self._engine.read_rows(
            "worker_names",
            prefix=prefix.encode(),
            after=sortable_name(prefix + after) if after else None,
            limit=limit,
        )
        found = [self._found(worker_id) for _, worker_id in rows]
        return [worker for worker in found if worker is not None]

    def _found(self, worker_id: bytes) -> FoundWorker | None:
        status = read_status(self._engine, worker_id)
        if status is None:
            return None
        revision = read_revision(self._engine, status.component, status.revision)
        return FoundWorker(
            component_id=status.component_id,
            name=status.name.partition("/")[2],
            revision=status.revision,
            environment=environment(status, revision.env),
            arguments=status.args,
            status=status.state,
            retry_count=status.retries,
            created_at=status.created_at,
        )


def environment(status: Status, of_component: Mapping[str, str]) -> list[tuple[str, str]]:
    """The component's variables, then the worker's over them, then the three of its own."""
    merged = {**of_component, **status.env}
    own = {
        "GOLEM_WORKER_NAME": status.name.partition("/")[2],
        "GOLEM_COMPONENT_ID": status.component_id,
        "GOLEM_COMPONENT_VERSION": str(status.revision),
    }
    return [*((name, value) for name, value in merged.items() if name not in own), *own.items()]
