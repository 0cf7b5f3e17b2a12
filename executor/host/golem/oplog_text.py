"""The text of `golem:api/oplog@1.1.6`: names and types of the public interface."""

from typing import Final

OPLOG: Final = """
interface golem:api/oplog@1.1.6 {
  use wasi:clocks/wall-clock@0.2.0.{datetime};
  use golem:rpc/types@0.2.0.{uuid, wit-value, worker-id};
  use host.{component-version, oplog-index, persistence-level, retry-policy};
  use context.{attribute, attribute-value, span-id, trace-id};

  record account-id { value: string }
  variant wrapped-function-type {
    read-local,
    write-local,
    read-remote,
    write-remote,
    write-remote-batched(option<oplog-index>),
  }
  record plugin-installation-description {
    installation-id: uuid,
    name: string,
    version: string,
    parameters: list<tuple<string, string>>,
  }
  record create-parameters {
    timestamp: datetime,
    worker-id: worker-id,
    component-version: component-version,
    args: list<string>,
    env: list<tuple<string, string>>,
    account-id: account-id,
    parent: option<worker-id>,
    component-size: u64,
    initial-total-linear-memory-size: u64,
    initial-active-plugins: list<plugin-installation-description>,
  }
  record imported-function-invoked-parameters {
    timestamp: datetime,
    function-name: string,
    request: wit-value,
    response: wit-value,
    wrapped-function-type: wrapped-function-type,
  }
  record local-span-data {
    span-id: span-id,
    start: datetime,
    parent: option<span-id>,
    linked-context: option<u64>,
    attributes: list<attribute>,
    inherited: bool,
  }
  record external-span-data { span-id: span-id }
  variant span-data { local-span(local-span-data), external-span(external-span-data) }
  record exported-function-invoked-parameters {
    timestamp: datetime,
    function-name: string,
    request: list<wit-value>,
    idempotency-key: string,
    trace-id: trace-id,
    trace-states: list<string>,
    invocation-context: list<list<span-data>>,
  }
  record exported-function-completed-parameters {
    timestamp: datetime,
    response: wit-value,
    consumed-fuel: s64,
  }
  record error-parameters { timestamp: datetime, error: string }
  record jump-parameters { timestamp: datetime, start: oplog-index, end: oplog-index }
  record change-retry-policy-parameters { timestamp: datetime, retry-policy: retry-policy }
  record end-atomic-region-parameters { timestamp: datetime, begin-index: oplog-index }
  record end-remote-write-parameters { timestamp: datetime, begin-index: oplog-index }
  record exported-function-invocation-parameters {
    idempotency-key: string,
    function-name: string,
    input: option<list<wit-value>>,
  }
  variant worker-invocation {
    exported-function(exported-function-invocation-parameters),
    manual-update(component-version),
  }
  record pending-worker-invocation-parameters {
    timestamp: datetime,
    invocation: worker-invocation,
  }
  variant update-description { auto-update, snapshot-based(list<u8>) }
  record pending-update-parameters {
    timestamp: datetime,
    target-version: component-version,
    update-description: update-description,
  }
  record successful-update-parameters {
    timestamp: datetime,
    target-version: component-version,
    new-component-size: u64,
    new-active-plugins: list<plugin-installation-description>,
  }
  record failed-update-parameters {
    timestamp: datetime,
    target-version: component-version,
    details: option<string>,
  }
  record grow-memory-parameters { timestamp: datetime, delta: u64 }
  type worker-resource-id = u64;
  record create-resource-parameters { timestamp: datetime, resource-id: worker-resource-id }
  record drop-resource-parameters { timestamp: datetime, resource-id: worker-resource-id }
  record describe-resource-parameters {
    timestamp: datetime,
    resource-id: worker-resource-id,
    resource-name: string,
    resource-params: list<wit-value>,
  }
  enum log-level { stdout, stderr, trace, debug, info, warn, error, critical }
  record log-parameters {
    timestamp: datetime,
    level: log-level,
    context: string,
    message: string,
  }
  record activate-plugin-parameters {
    timestamp: datetime,
    plugin: plugin-installation-description,
  }
  record deactivate-plugin-parameters {
    timestamp: datetime,
    plugin: plugin-installation-description,
  }
  record revert-parameters { timestamp: datetime, start: oplog-index, end: oplog-index }
  record cancel-invocation-parameters { timestamp: datetime, idempotency-key: string }
  record start-span-parameters {
    timestamp: datetime,
    span-id: span-id,
    parent: option<span-id>,
    linked-context: option<span-id>,
    attributes: list<attribute>,
  }
  record finish-span-parameters { timestamp: datetime, span-id: span-id }
  record set-span-attribute-parameters {
    timestamp: datetime,
    span-id: span-id,
    key: string,
    value: attribute-value,
  }
  record change-persistence-level-parameters {
    timestamp: datetime,
    persistence-level: persistence-level,
  }
  variant oplog-entry {
    create(create-parameters),
    imported-function-invoked(imported-function-invoked-parameters),
    exported-function-invoked(exported-function-invoked-parameters),
    exported-function-completed(exported-function-completed-parameters),
    suspend(datetime),
    error(error-parameters),
    no-op(datetime),
    jump(jump-parameters),
    interrupted(datetime),
    exited(datetime),
    change-retry-policy(change-retry-policy-parameters),
    begin-atomic-region(datetime),
    end-atomic-region(end-atomic-region-parameters),
    begin-remote-write(datetime),
    end-remote-write(end-remote-write-parameters),
    pending-worker-invocation(pending-worker-invocation-parameters),
    pending-update(pending-update-parameters),
    successful-update(successful-update-parameters),
    failed-update(failed-update-parameters),
    grow-memory(grow-memory-parameters),
    create-resource(create-resource-parameters),
    drop-resource(drop-resource-parameters),
    describe-resource(describe-resource-parameters),
    log(log-parameters),
    restart(datetime),
    activate-plugin(activate-plugin-parameters),
    deactivate-plugin(deactivate-plugin-parameters),
    revert(revert-parameters),
    cancel-invocation(cancel-invocation-parameters),
    start-span(start-span-parameters),
    finish-span(finish-span-parameters),
    set-span-attribute(set-span-attribute-parameters),
    change-persistence-level(change-persistence-level-parameters),
  }

  resource get-oplog {
    constructor(worker-id: worker-id, start: oplog-index);
    get-next: func() -> option<list<oplog-entry>>;
  }
  resource search-oplog {
    constructor(worker-id: worker-id, text: string);
    get-next: func() -> option<list<tuple<oplog-index, oplog-entry>>>;
  }
}
"""
