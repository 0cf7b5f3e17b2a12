"""The JSON of every answer, on the command line and over HTTP. Scripts depend on these shapes:
fields are added, never changed.

Times are RFC 3339 in UTC with nanoseconds. Values of the guest are in their self-describing form:
bytes `{"base64": …}`, a variant `{"case": v}` or `"case"`, a result `{"ok": v}` or `{"err": e}`,
nan and the infinities as strings.
"""

import msgspec

from executor.records import (
    ENTRY_TIMES,
    Accepted,
    ComponentRecord,
    ComponentSummary,
    Deployed,
    Done,
    ErrorRecord,
    FileRecord,
    Invocation,
    OplogRecord,
    PromisePage,
    PromiseRecord,
    Rebuild,
    RevisionRecord,
    WorkerFile,
    WorkerPage,
    WorkerRecord,
    WorkerSummary,
    time_text,
)
from executor.wasm.plain import plain_to_json
from oplog.codec import decode_value
from oplog.entry import HINTS, KIND_OF

Json = dict[str, object]


def error_json(error: ErrorRecord) -> Json:
    return {
        "kind": error.kind,
        "message": error.message,
        "where": error.where,
        "hint": error.hint,
    }


def deployed_json(deployed: Deployed) -> Json:
    """`newest` is there only where new workers take another revision."""
    shape: Json = {
        "component": deployed.component,
        "id": deployed.id,
        "revision": deployed.revision,
        "digest": deployed.digest,
        "imports": list(deployed.imports),
        "exports": list(deployed.exports),
    }
    if deployed.newest is not None:
        shape["newest"] = deployed.newest
    return shape


def component_json(component: ComponentRecord) -> Json:
    return {
        "component": component.component,
        "id": component.id,
        "revisions": [revision_json(revision) for revision in component.revisions],
        "imports": list(component.imports),
        "exports": list(component.exports),
    }


def revision_json(revision: RevisionRecord) -> Json:
    """What it was deployed with is there where it was given, by the names that `create` has."""
    files = [{"path": path, "writable": writable} for path, writable in revision.files]
    options: Json = {
        "env": dict(revision.env),
        "config": dict(revision.config),
        "files": files,
        "limits": dict(revision.limits),
        "host": list(revision.host),
        "host_directory": revision.host_directory,
        "allow_net": list(revision.allow_net),
        "retry": revision.retry and _struct_fields(revision.retry, 0),
        "retry_rules": _field("retry_rules", revision.retry_rules, 0),
    }
    return {
        "revision": revision.revision,
        "digest": revision.digest,
        "bytes": revision.bytes,
        "deployed_at": time_text(revision.deployed_at),
        **{name: value for name, value in options.items() if value},
    }


def component_summary_json(component: ComponentSummary) -> Json:
    return {
        "component": component.component,
        "id": component.id,
        "revision": component.revision,
        "workers": component.workers,
    }


def invocation_json(invocation: Invocation) -> Json:
    return {
        "worker": invocation.worker,
        "function": invocation.function,
        "key": invocation.key,
        "status": invocation.status,
        "result": invocation_result(invocation),
        "wave": invocation.wave,
        "error": error_json(invocation.error) if invocation.error else None,
        "attempts": invocation.attempts,
        "deduplicated": invocation.deduplicated,
        "stdout": invocation.stdout,
        "stderr": invocation.stderr,
    }


def invocation_result(invocation: Invocation) -> object:
    """The guest's value, or what it exited with."""
    if invocation.exit_code is not None:
        return {"exit": invocation.exit_code}
    return plain_to_json(invocation.result)


def worker_summary_json(worker: WorkerSummary) -> Json:
    return {
        "worker": worker.worker,
        "component": worker.component,
        "revision": worker.revision,
        "status": worker.status,
        "pending": worker.pending,
        "entries": worker.entries,
        "created_at": time_text(worker.created_at),
        "last_error": worker.last_error,
    }


def worker_page_json(page: WorkerPage) -> Json:
    return {
        "workers": [worker_summary_json(worker) for worker in page.workers],
        "cursor": page.cursor,
    }


def worker_json(worker: WorkerRecord) -> Json:
    return {
        "worker": worker.worker,
        "id": worker.id,
        "component": worker.component,
        "revision": worker.revision,
        "status": worker.status,
        "env": dict(worker.env),
        "args": list(worker.args),
        "allow_net": list(worker.allow_net),
        "pending": list(worker.pending),
        "current_key": worker.current_key,
        "entries": worker.entries,
        "bytes": worker.bytes,
        "retries": worker.retries,
        "last_error": worker.last_error,
        "created_at": time_text(worker.created_at),
        "loaded": worker.loaded,
    }


def rebuild_json(rebuild: Rebuild) -> Json:
    """`stopped_at` is there only where the rebuild ended before the end of the oplog."""
    divergence = rebuild.divergence
    shape: Json = {
        "worker": rebuild.worker,
        "entries": rebuild.entries,
        "replayed": rebuild.replayed,
        "ms": round(rebuild.ms, 3),
        "divergence": msgspec.to_builtins(divergence) if divergence else None,
    }
    if rebuild.stopped_at is not None:
        shape["stopped_at"] = rebuild.stopped_at
    return shape


def worker_file_json(found: WorkerFile) -> Json:
    """A directory has `entries`, a file `content`; `stopped_at` as in `rebuild_json`."""
    shape: Json = {
        "worker": found.worker,
        "path": found.path,
        "file": file_json(found.file),
    }
    if found.entries is not None:
        shape["entries"] = [file_json(entry) for entry in found.entries]
    if found.content is not None:
        shape["content"] = plain_to_json(found.content)
    if found.stopped_at is not None:
        shape["stopped_at"] = found.stopped_at
    return shape


def file_json(file: FileRecord) -> Json:
    """`target` is there only for a symbolic link."""
    shape: Json = {
        "name": file.name,
        "kind": file.kind,
        "size": file.size,
        "links": file.links,
        "writable": file.writable,
        "accessed_at": time_text(file.accessed_at),
        "modified_at": time_text(file.modified_at),
        "changed_at": time_text(file.changed_at),
    }
    if file.target is not None:
        shape["target"] = file.target
    return shape


def accepted_json(accepted: Accepted) -> Json:
    return {
        "worker": accepted.worker,
        "function": accepted.function,
        "key": accepted.key,
        "deduplicated": accepted.deduplicated,
    }


def promise_json(promise: PromiseRecord) -> Json:
    """`completed_at` and `value` are null while it is pending."""
    done = promise.completed_at
    return {
        "promise": promise.promise,
        "status": promise.status,
        "created_at": time_text(promise.created_at),
        "completed_at": None if done is None else time_text(done),
        "value": None if promise.value is None else plain_to_json(promise.value),
    }


def promise_page_json(page: PromisePage) -> Json:
    return {
        "worker": page.worker,
        "promises": [promise_json(promise) for promise in page.promises],
        "cursor": page.cursor,
    }


def done_json(done: Done) -> Json:
    return {"worker": done.worker, "done": done.done, "status": done.status}


def entry_json(record: OplogRecord) -> Json:
    """One entry: `index, at, kind, hint, hidden`, then the fields of its kind that are set."""
    return {
        "index": record.index,
        "at": time_text(record.entry.at),
        "kind": KIND_OF[type(record.entry)],
        "hint": type(record.entry) in HINTS,
        "hidden": record.hidden,
        **{name: value for name, value in entry_fields(record).items() if name != "at"},
    }


def entry_fields(record: OplogRecord) -> Json:
    """The fields of the entry's struct that are set, as JSON values, in their order. Every entry
    has a kind; the one that an error has is its `error_kind`.
    """
    fields = _struct_fields(record.entry, record.index)
    return {"error_kind" if name == "kind" else name: value for name, value in fields.items()}


def _struct_fields(struct: msgspec.Struct, index: int) -> Json:
    fields: Json = {}
    for name in struct.__struct_fields__:
        value = getattr(struct, name)
        if value is None or (isinstance(value, msgspec.Raw) and not memoryview(value).nbytes):
            continue
        if name == "backtrace" and not value:
            continue  # only a trap has one
        fields[name] = time_text(value) if name in ENTRY_TIMES else _field(name, value, index)
    return fields


def _field(name: str, value: object, index: int) -> object:
    match value:
        case msgspec.Raw():
            return plain_to_json(decode_value(value, index))
        case bytes() if name == "worker_id":
            return value.hex()
        case bytes():
            return plain_to_json(value)
        case msgspec.Struct():
            return _struct_fields(value, index)
        case tuple():
            return [_field(name, item, index) for item in value]
        case _:
            return value
