"""Reading a store: components, workers, oplogs and outcomes, without running anything.

Works beside the process that runs the store, on the committed state. Every method blocks for as
long as the disk does.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from msgspec.structs import replace

from executor.errors import UsageError, WorkerDeleted, WorkerNotFound
from executor.records import (
    ComponentRecord,
    ComponentSummary,
    Invocation,
    OplogRecord,
    PromisePage,
    PromiseRecord,
    RevisionRecord,
    WorkerPage,
    WorkerRecord,
    WorkerSummary,
)
from executor.replay.regions import Regions
from executor.services.components import (
    read_component,
    read_components,
    read_revision,
    read_revisions,
    row_key,
)
from executor.services.promises import (
    PromiseId,
    PromiseRow,
    read_promise,
    read_promises,
    unknown,
)
from executor.wasm.plain import read_result
from executor.wasm.types import FuncType
from executor.wasm.wave import format_wave
from executor.worker.commits import refused_store, store_errors
from executor.worker.entries import PAGE_ENTRIES, WorkerEntries
from executor.worker.outcomes import exit_record, failure_record, unknown_key
from executor.worker.output import read_output
from executor.worker.rows import (
    SORTABLE_NAME_BYTES_MAX,
    read_known_key,
    read_queue,
    read_status,
    read_worker_id,
    sortable_name,
    state_row,
    unknown_worker,
)
from executor.worker.search import Query, matches, parse
from executor.worker.signatures import export_types
from executor.worker.status import CANCELLED, STATES, KeyState, Status
from oplog.codec import decode_value, values_of
from oplog.engine import Engine
from oplog.entry import ABSENT, CancelPendingInvocation, InvocationFinished
from oplog.errors import OplogCorruptError, OplogError
from oplog.lmdb_engine import LmdbEngine
from oplog.reader import Reader

WORKERS_PER_PAGE: Final = 50
PROMISES_PER_PAGE: Final = 50
FOLLOW_S: Final = 0.1
"""Seconds after which one who follows an oplog looks for more."""
EXPORTS_KEPT: Final = 256
"""Revisions whose exports are kept as they were parsed."""


class StoreReader:
    """Read-only answers from one engine. `close` closes the engine if the reader opened it."""

    def __init__(self, store: Path | str | Engine) -> None:
        """Raises: StoreError if there is no store, or it cannot be read."""
        self._owned = not isinstance(store, Engine)
        if isinstance(store, Engine):
            self.engine = store
        else:
            try:
                self.engine = LmdbEngine.open(Path(store), readonly=True)
            except OplogError as error:
                raise refused_store(error, Path(store)) from error
        self._reader = Reader(self.engine)
        self.exports = lru_cache(maxsize=EXPORTS_KEPT)(self._read_exports)
        """The exported functions of a revision by path. Raises: ComponentNotFound."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._owned:
            self.engine.close()

    # -- components ----------------------------------------------------------------------------

    def components(self) -> tuple[ComponentSummary, ...]:
        return tuple(
            ComponentSummary(
                component=row.component,
                id=row.id,
                revision=row.revision,
                workers=self._count_workers(row.component),
            )
            for row in read_components(self.engine)
        )

    def component(self, name: str) -> ComponentRecord:
        """Raises: ComponentNotFound."""
        row = read_component(self.engine, name)
        revisions = read_revisions(self.engine, name)
        return ComponentRecord(
            component=row.component,
            id=row.id,
            revisions=tuple(
                RevisionRecord(
                    revision=revision.revision,
                    digest=revision.digest,
                    bytes=revision.size_bytes,
                    deployed_at=revision.deployed_at,
                    env=revision.env,
                    config=revision.config,
                    files=tuple((file.path, file.writable) for file in revision.files),
                    limits=revision.limits,
                    host=revision.host,
                    host_directory=revision.host_directory,
                    retry=revision.retry,
                    allow_net=revision.allow_net,
                    retry_rules=revision.retry_rules,
                )
                for revision in revisions
            ),
            imports=revisions[-1].imports,
            exports=revisions[-1].exports,
        )

    def _count_workers(self, component: str) -> int:
        count = 0
        after: bytes | None = None
        prefix = component.encode() + b"/"
        while page := self.engine.read_rows(
            "worker_names", prefix=prefix, after=after, limit=10_000
        ):
            count += len(page)
            after = page[-1][0]
        return count

    # -- workers -------------------------------------------------------------------------------

    def worker_id(self, name: str) -> bytes:
        """Raises: WorkerNotFound."""
        found = read_worker_id(self.engine, name)
        if found is None:
            raise unknown_worker(self.engine, name)
        return found

    def status(self, worker_id: bytes) -> Status:
        status = read_status(self.engine, worker_id)
        if status is None:
            raise WorkerNotFound(
                "the worker was deleted", where=worker_id.hex(), hint="see `shem workers`"
            )
        return status

    def worker(self, name: str, *, loaded: bool = False) -> WorkerRecord:
        """Raises: WorkerNotFound."""
        worker_id = self.worker_id(name)
        with store_errors(name):
            status = self.status(worker_id)
        return WorkerRecord(
            worker=status.name,
            id=worker_id.hex(),
            component=status.component,
            revision=status.revision,
            status=status.state,
            env=status.env,
            args=status.args,
            allow_net=status.allow_net,
            pending=tuple(key for _, key in read_queue(self.engine, worker_id)),
            current_key=status.current.key if status.current is not None else None,
            entries=status.last_index,
            bytes=status.bytes,
            retries=status.retries,
            last_error=status.last_error.message if status.last_error is not None else None,
            created_at=status.created_at,
            loaded=loaded,
        )

    def workers(
        self,
        component: str | None = None,
        *,
        status: str | None = None,
        limit: int = WORKERS_PER_PAGE,
        cursor: str | None = None,
    ) -> WorkerPage:
        """One page in the order of names; `cursor` is the last page's, None for the first. A worker
        that is there all the while is on exactly one page, whatever becomes of the others.

        Raises: ComponentNotFound; UsageError for a status or cursor that does not exist.
        """
        if status is not None and status not in STATES:
            raise UsageError(
                f"{status!r} is no status", where="workers", hint=f"one of {', '.join(STATES)}"
            )
        if component is not None:
            read_component(self.engine, component)
        table, base = ("worker_names", b"")
        if status is not None:
            table, base = "worker_index", state_row(status, "")
        prefix = base + (row_key(component) + b"/" if component is not None else b"")
        after = base + cursor_key(cursor) if cursor is not None else None
        rows = self.engine.read_rows(table, prefix=prefix, after=after, limit=limit)
        summaries = [
            summary(found)
            for _, worker_id in rows
            if (found := read_status(self.engine, worker_id)) is not None
            and status in (None, found.state)
        ]
        more = len(rows) == limit and limit > 0
        return WorkerPage(
            workers=tuple(summaries), cursor=rows[-1][0][len(base) :].hex() if more else None
        )

    # -- promises ------------------------------------------------------------------------------

    def promises(self, name: str, *, after: int = 0, limit: int = PROMISES_PER_PAGE) -> PromisePage:
        """The worker's promises that were made after entry `after`, at most `limit`.

        Raises: WorkerNotFound.
        """
        found = read_promises(self.engine, self.worker_id(name), after)
        page = list(islice(found, limit + 1))
        return PromisePage(
            worker=name,
            promises=tuple(promise_record(index, row) for index, row in page[:limit]),
            cursor=page[limit - 1][0] if len(page) > limit else None,
        )

    def promise(self, name: str, index: int) -> PromiseRecord:
        """Raises: WorkerNotFound, UnknownPromise."""
        promise = PromiseId(self.worker_id(name), index)
        row = read_promise(self.engine, promise)
        if row is None:
            raise unknown(promise, name)
        return promise_record(index, row)

    def worker_names(self, beginning: str, limit: int) -> list[str]:
        """Names of workers that begin so, in their order; but the longest, whose rows are cut."""
        rows = self.engine.read_rows("worker_names", sortable_name(beginning), limit=limit)
        return [key.decode() for key, _ in rows if len(key) <= SORTABLE_NAME_BYTES_MAX]

    # -- oplogs and outcomes ---------------------------------------------------------------------

    def oplog(
        self, name: str, first: int = 1, limit: int | None = None, *, search: str | None = None
    ) -> Iterator[OplogRecord]:
        """Committed entries from index `first` on, at most `limit`; with `search` those that this
        query matches (`executor.worker.search`). Ends early if the worker is deleted meanwhile.

        Raises: WorkerNotFound; UsageError for a query that makes no sense.
        """
        for page in self.oplog_pages(name, first, limit, search=search):
            yield from page or ()

    def oplog_pages(
        self,
        name: str,
        first: int = 1,
        limit: int | None = None,
        *,
        search: str | None = None,
        follow: bool = False,
    ) -> Iterator[list[OplogRecord] | None]:
        """As `oplog`, a page at a time: no more than 1,024 entries are read at once. With `follow`
        also whatever is committed from then on; None wherever there is no more yet.

        Raises: with `follow` WorkerDeleted once the worker is deleted, also if another has its name
        by then.
        """
        query = None if search is None else parse(search)
        worker_id = self.worker_id(name)
        with store_errors(name):
            status: Status | None = self.status(worker_id)
            while status is not None:
                for page in self._pages(worker_id, status, first, limit, query):
                    yield page
                    limit = None if limit is None else limit - len(page)
                if not follow or limit == 0:
                    return
                first = max(first, status.last_index + 1)
                yield None
                status = read_status(self.engine, worker_id)
            raise WorkerDeleted("the worker was deleted", where=name, hint="it has no more entries")

    def follow_oplog(
        self, name: str, first: int = 1, *, search: str | None = None, wait: Callable[[], None]
    ) -> Iterator[OplogRecord]:
        """As `oplog_pages` with `follow`, an entry at a time; `wait` is called before each further
        look.
        """
        for page in self.oplog_pages(name, first, search=search, follow=True):
            if page is None:
                wait()
            else:
                yield from page

    def _pages(
        self,
        worker_id: bytes,
        status: Status,
        first: int,
        limit: int | None,
        query: Query | None,
    ) -> Iterator[list[OplogRecord]]:
        """The entries up to the last one of `status`."""
        entries = WorkerEntries(self._reader, worker_id)
        regions = Regions(status.cuts)
        index = max(first, 1)
        while index <= status.last_index and limit != 0:
            size = min(status.last_index - index + 1, PAGE_ENTRIES)
            if limit is not None and query is None:
                size = min(size, limit)
            try:
                page = entries.page(index, size)
            except OplogCorruptError:
                if read_status(self.engine, worker_id) is None:
                    return  # a large value went with its worker
                raise
            if not page:
                return
            records = [
                OplogRecord(index=index, entry=entry, hidden=regions.conceals(index, entry))
                for index, entry in page
            ]
            found = [record for record in records if query is None or matches(query, record)]
            index = page[-1][0] + 1
            if limit is not None:
                found = found[:limit]
                limit -= len(found)
            yield found

    def invocation(self, name: str, key: str, *, deduplicated: bool = False) -> Invocation:
        """What is committed of one key. Raises: WorkerNotFound, UnknownKey."""
        worker_id = self.worker_id(name)
        with store_errors(name):
            status = self.status(worker_id)
            state = read_known_key(self.engine, worker_id, status, key)
        if state is None:
            raise unknown_key(name, key)
        return self.invocation_of(status, worker_id, state, deduplicated)

    def invocation_of(
        self, status: Status, worker_id: bytes, state: KeyState, deduplicated: bool
    ) -> Invocation:
        """The full record of one key, from its finished entry and its output."""
        with store_errors(status.name):
            entries = WorkerEntries(self._reader, worker_id)
            output = read_output(entries, state) if state.logs else ("", "")
            record = Invocation(
                worker=status.name,
                function=state.function,
                key=state.key,
                status="pending",
                attempts=state.attempts,
                deduplicated=deduplicated,
                stdout=output[0],
                stderr=output[1],
            )
            finished = entries.one(state.finished_index) if state.finished_index else None
            if isinstance(finished, CancelPendingInvocation):
                error = failure_record(status.name, "cancelled", CANCELLED)
                return replace(record, status="failed", error=error)
            if not isinstance(finished, InvocationFinished):
                return record
            wit = self.exports(status.component, status.revision)[state.function]
            with values_of(state.finished_index):
                return completed(record, finished, wit)

    def _read_exports(self, component: str, revision: int) -> Mapping[str, FuncType]:
        return export_types(read_revision(self.engine, component, revision).exports)


def promise_record(index: int, row: PromiseRow) -> PromiseRecord:
    return PromiseRecord(
        promise=index,
        status="completed" if row.completed_at else "pending",
        created_at=row.created_at,
        completed_at=row.completed_at or None,
        value=row.value if row.completed_at else None,
    )


def completed(record: Invocation, finished: InvocationFinished, wit: FuncType) -> Invocation:
    """`record` with its outcome."""
    outcome = finished.outcome
    fields = {name: getattr(record, name) for name in record.__struct_fields__}
    if outcome.failure is not None:
        failure = outcome.failure
        error = failure_record(record.worker, failure.kind, failure.message)
        return Invocation(**fields | {"status": "failed", "error": error})
    if outcome.exit is not None:
        ended: dict[str, object] = {"exit_code": outcome.exit, "result": {"exit": outcome.exit}}
        if outcome.exit == 0:
            return Invocation(**fields | ended | {"status": "completed"})
        error = exit_record(record.worker, outcome.exit)
        return Invocation(**fields | ended | {"status": "failed", "error": error})
    result = outcome.result
    if result is ABSENT or wit.result is None:
        return Invocation(**fields | {"status": "completed"})
    value = read_result(wit.result, result)
    return Invocation(
        **fields
        | {
            "status": "completed",
            "result": decode_value(result),
            "value": value,
            "wave": format_wave(wit.result, value),
        }
    )


def summary(status: Status) -> WorkerSummary:
    return WorkerSummary(
        worker=status.name,
        component=status.component,
        revision=status.revision,
        status=status.state,
        pending=status.pending,
        entries=status.last_index,
        created_at=status.created_at,
        last_error=status.last_error.message if status.last_error is not None else None,
    )


def cursor_key(cursor: str) -> bytes:
    """Raises: UsageError unless the cursor is one that a page gave."""
    try:
        key = bytes.fromhex(cursor)
    except ValueError:
        key = b""
    if b"/" not in key:
        raise UsageError(
            f"{cursor!r} is no cursor", where="workers", hint="use the cursor of the last page"
        )
    return key


@lru_cache(maxsize=4_096)
def worker_parts(name: str) -> tuple[str, str]:
    """Component and worker name of `component/name`. Raises: RequestError."""
    component, slash, own = name.partition("/")
    fits = slash and component and 1 <= len(own) <= 256 and "/" not in own and "\0" not in name
    if not fits or any("\ud800" <= character <= "\udfff" for character in name):
        raise UsageError(
            f"{name!r} does not name a worker",
            where="worker",
            hint="write COMPONENT/NAME; a name has 1 to 256 Unicode characters and no slash",
        )
    return component, own
