"""Golem's guests for key-value buckets and blob containers, live, replayed and after crashes.

What is expected is the behaviour of `keyvalue.rs` and `blobstore.rs` of Golem's executor tests at
v1.2.5, written afresh.
"""

from pathlib import Path

import pytest
from trio.testing import trio_test

from executor.executor import Executor
from tests.conformance.golem.components import WHY_SKIPPED, components_folder
from tests.conformance.golem.guest import Guest, Mode, deployed

if components_folder() is None:
    pytest.skip(WHY_SKIPPED, allow_module_level=True)

VALUE = bytes([1, 2, 3])
OTHER = bytes([4, 5, 6])


async def keys_and_values(shem: Executor, mode: Mode) -> Guest:
    return await deployed(shem, "key-value-service", "w", mode)


@trio_test
async def test_a_value_is_got_as_it_was_set_and_set_again(tmp_path: Path, mode: Mode) -> None:
    async with Executor.open(tmp_path) as shem:
        guest = await keys_and_values(shem, mode)
        assert await guest.call("get", "bucket", "key") is None
        await guest.call("set", "bucket", "key", VALUE)
        assert await guest.call("get", "bucket", "key") == VALUE
        await guest.call("set", "bucket", "key", OTHER)
        assert await guest.call("get", "bucket", "key") == OTHER


@trio_test
async def test_a_value_is_there_until_it_is_deleted(tmp_path: Path, mode: Mode) -> None:
    async with Executor.open(tmp_path) as shem:
        guest = await keys_and_values(shem, mode)
        assert await guest.call("exists", "bucket", "key") is False
        await guest.call("set", "bucket", "key", VALUE)
        assert await guest.call("exists", "bucket", "key") is True
        await guest.call("delete", "bucket", "key")
        assert await guest.call("exists", "bucket", "key") is False
        assert await guest.call("get", "bucket", "key") is None
        await guest.call("delete", "bucket", "key")


@trio_test
async def test_buckets_are_shared_by_workers_and_outlive_the_executor(
    tmp_path: Path, mode: Mode
) -> None:
    async with Executor.open(tmp_path) as shem:
        guest = await keys_and_values(shem, mode)
        await guest.call("set", "bucket", "key", VALUE)
    async with Executor.open(tmp_path) as shem:
        other = await deployed(shem, "key-value-service", "other", mode)
        assert await other.call("get", "bucket", "key") == VALUE
        assert await other.call("get", "other", "key") is None


@trio_test
async def test_a_container_exists_once_it_was_created(tmp_path: Path, mode: Mode) -> None:
    async with Executor.open(tmp_path) as shem:
        guest = await deployed(shem, "blob-store-service", "w", mode)
        assert await guest.call("container-exists", "container") is False
        await guest.call("create-container", "container")
        assert await guest.call("container-exists", "container") is True
        assert await guest.call("container-exists", "other") is False


@trio_test
async def test_many_keys_are_got_only_if_all_are_there(tmp_path: Path, mode: Mode) -> None:
    async with Executor.open(tmp_path) as shem:
        guest = await keys_and_values(shem, mode)
        keys = ["key1", "key2", "key3"]
        pairs = [(key, bytes([number])) for number, key in enumerate(keys)]
        await guest.call("set-many", "bucket", pairs)
        assert await guest.call("get-many", "bucket", keys) == [value for _, value in pairs]
        assert await guest.call("get-many", "bucket", [*keys, "key4"]) is None
        assert sorted(await guest.call("get-keys", "bucket")) == keys
        await guest.call("delete-many", "bucket", keys[:2])
        assert await guest.call("get-keys", "bucket") == ["key3"]
        assert await guest.call("get", "bucket", "key1") is None
