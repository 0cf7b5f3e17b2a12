"""The text of `golem:api/host@1.1.6`: names and types of the public interface."""

from typing import Final

HOST: Final = """
interface golem:api/host@1.1.6 {
  use golem:rpc/types@0.2.0.{component-id, uuid, worker-id};

  type duration = u64;
  type oplog-index = u64;
  type component-version = u64;

  record promise-id { worker-id: worker-id, oplog-idx: oplog-index }
  record retry-policy {
    max-attempts: u32,
    min-delay: duration,
    max-delay: duration,
    multiplier: f64,
    max-jitter-factor: option<f64>,
  }
  variant persistence-level { persist-nothing, persist-remote-side-effects, smart }
  enum update-mode { automatic, snapshot-based }

  enum filter-comparator { equal, not-equal, greater-equal, greater, less-equal, less }
  enum string-filter-comparator { equal, not-equal, like, not-like }
  enum worker-status { running, idle, suspended, interrupted, retrying, failed, exited }
  record worker-name-filter { comparator: string-filter-comparator, value: string }
  record worker-status-filter { comparator: filter-comparator, value: worker-status }
  record worker-version-filter { comparator: filter-comparator, value: u64 }
  record worker-created-at-filter { comparator: filter-comparator, value: u64 }
  record worker-env-filter { name: string, comparator: string-filter-comparator, value: string }
  variant worker-property-filter {
    name(worker-name-filter),
    status(worker-status-filter),
    version(worker-version-filter),
    created-at(worker-created-at-filter),
    env(worker-env-filter),
  }
  record worker-all-filter { filters: list<worker-property-filter> }
  record worker-any-filter { filters: list<worker-all-filter> }
  record worker-metadata {
    worker-id: worker-id,
    args: list<string>,
    env: list<tuple<string, string>>,
    status: worker-status,
    component-version: u64,
    retry-count: u64,
  }
  resource get-workers {
    constructor(component-id: component-id, filter: option<worker-any-filter>, precise: bool);
    get-next: func() -> option<list<worker-metadata>>;
  }
  variant revert-worker-target {
    revert-to-oplog-index(oplog-index),
    revert-last-invocations(u64),
  }
  enum fork-result { original, forked }

  create-promise: func() -> promise-id;
  await-promise: func(promise-id: promise-id) -> list<u8>;
  poll-promise: func(promise-id: promise-id) -> option<list<u8>>;
  complete-promise: func(promise-id: promise-id, data: list<u8>) -> bool;
  delete-promise: func(promise-id: promise-id);

  get-oplog-index: func() -> oplog-index;
  set-oplog-index: func(oplog-idx: oplog-index);
  oplog-commit: func(replicas: u8);
  mark-begin-operation: func() -> oplog-index;
  mark-end-operation: func(begin: oplog-index);
  get-retry-policy: func() -> retry-policy;
  set-retry-policy: func(new-retry-policy: retry-policy);
  get-oplog-persistence-level: func() -> persistence-level;
  set-oplog-persistence-level: func(new-persistence-level: persistence-level);
  get-idempotence-mode: func() -> bool;
  set-idempotence-mode: func(idempotent: bool);
  generate-idempotency-key: func() -> uuid;

  update-worker: func(worker-id: worker-id, target-version: component-version, mode: update-mode);
  get-self-metadata: func() -> worker-metadata;
  get-worker-metadata: func(worker-id: worker-id) -> option<worker-metadata>;
  fork-worker: func(
    source-worker-id: worker-id, target-worker-id: worker-id, oplog-idx-cut-off: oplog-index
  );
  revert-worker: func(worker-id: worker-id, revert-target: revert-worker-target);
  resolve-component-id: func(component-reference: string) -> option<component-id>;
  resolve-worker-id: func(component-reference: string, worker-name: string) -> option<worker-id>;
  resolve-worker-id-strict: func(
    component-reference: string, worker-name: string
  ) -> option<worker-id>;
  fork: func(new-name: string) -> fork-result;
}
"""
