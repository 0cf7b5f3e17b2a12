import os
import select
import socket
import stat

import pytest

from executor.server.door import SOCKET_NAME, Door, short_path, was_killed


@pytest.fixture
def folder(tmp_path):
    """Whose path is longer than a socket's address may be."""
    path = tmp_path / ("d" * 120)
    path.mkdir()
    return path


def test_a_door_is_its_owners_alone_and_is_reached_whatever_the_path(folder):
    before = os.umask(0)
    door = Door.open(folder)
    os.umask(before)
    assert stat.S_IMODE((folder / SOCKET_NAME).stat().st_mode) == 0o600
    with short_path(folder) as short, socket.socket(socket.AF_UNIX) as client:
        client.connect(short)
    assert not was_killed(folder)
    door.remove()
    assert not (folder / SOCKET_NAME).exists()
    door.close()


def test_a_socket_that_was_left_behind_tells_of_a_killed_process_and_is_replaced(folder):
    Door.open(folder).close()
    assert was_killed(folder)
    door = Door.open(folder)
    assert not was_killed(folder)
    door.remove()
    assert not was_killed(folder)
    door.close()


def test_who_comes_after_the_accepting_ended_waits_until_the_door_is_closed(folder):
    door = Door.open(folder)
    os.close(door.hand_over())
    with short_path(folder) as short, socket.socket(socket.AF_UNIX) as client:
        client.connect(short)
        door.remove()
        door.close()
        client.settimeout(5)
        with pytest.raises(ConnectionResetError):
            client.recv(1)


def test_a_process_that_is_being_killed_may_lose_its_socket_last(folder, monkeypatch):
    """Who lost a connection asks while the socket is still there."""
    door = Door.open(folder)
    wait = select.select

    def closed_meanwhile(*watched):
        door.close()
        return wait(*watched)

    monkeypatch.setattr("executor.server.door.select.select", closed_meanwhile)
    assert was_killed(folder)
