import os
import signal
import subprocess
import sys
import textwrap

import pytest

from oplog.directory import LOCK_NAME
from oplog.errors import OplogBusyError, OplogError
from oplog.lock import StoreLock, StoreLockedError


def holder(directory):
    """A process that holds the lock until its input ends."""
    code = f"""
        from pathlib import Path; import sys
        from oplog.lock import StoreLock
        lock = StoreLock.take(Path({str(directory)!r}))
        print("held", flush=True)
        sys.stdin.read()
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), "serve"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "held\n"
    return process


def end(process):
    process.stdin.close()
    process.wait(10)
    process.stdout.close()


def test_a_second_process_is_refused_and_told_who_holds_the_store(tmp_path):
    process = holder(tmp_path)
    try:
        with pytest.raises(StoreLockedError, match=f"in use by process {process.pid} ") as caught:
            StoreLock.take(tmp_path)
        assert isinstance(caught.value, OplogBusyError)
        assert caught.value.process == f"{process.pid} (-c serve)"
    finally:
        end(process)
    StoreLock.take(tmp_path).release()


def test_the_lock_of_a_killed_process_is_free_though_its_file_is_there(tmp_path):
    process = holder(tmp_path)
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    process.stdin.close()
    process.stdout.close()
    assert str(process.pid) in (tmp_path / LOCK_NAME).read_text()
    lock = StoreLock.take(tmp_path)
    assert (tmp_path / LOCK_NAME).read_text().startswith(f"{os.getpid()} (")
    lock.release()


def test_the_same_process_cannot_take_it_twice(tmp_path):
    lock = StoreLock.take(tmp_path)
    with pytest.raises(StoreLockedError, match=str(os.getpid())):
        StoreLock.take(tmp_path)
    lock.release()
    lock.release()
    StoreLock.take(tmp_path).release()


def test_who_has_given_the_lock_up_is_not_named_though_its_process_lives(tmp_path):
    lock = StoreLock.take(tmp_path)
    lock.release()
    assert (tmp_path / LOCK_NAME).read_bytes() == b""


def test_a_child_of_the_holder_does_not_keep_the_lock(tmp_path):
    lock = StoreLock.take(tmp_path)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    lock.release()
    StoreLock.take(tmp_path).release()
    child.communicate(b"\n", timeout=10)


def test_a_missing_directory_is_a_clear_refusal(tmp_path):
    with pytest.raises(OplogError, match="No such file or directory"):
        StoreLock.take(tmp_path / "missing")
