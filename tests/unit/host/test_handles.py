import pytest

from executor.errors import InternalError, LimitError
from executor.host.handles import HandleTable


def test_numbers_start_at_one_and_are_never_used_again():
    handles = HandleTable()
    assert [handles.add("a"), handles.add("b")] == [1, 2]
    assert handles.drop(2) == "b"
    assert handles.add("c") == 3
    assert handles.get(1, str) == "a"
    assert len(handles) == 2


def test_a_handle_of_another_class_is_our_own_fault():
    handles = HandleTable()
    number = handles.add("a")
    with pytest.raises(InternalError, match="handle 1 is str, not int"):
        handles.get(number, int)


def test_a_dropped_handle_is_neither_read_nor_dropped_again():
    handles = HandleTable()
    number = handles.add("a")
    handles.drop(number)
    with pytest.raises(InternalError):
        handles.get(number, str)
    with pytest.raises(InternalError):
        handles.drop(number)


def test_a_guest_that_holds_too_many_handles_meets_a_limit():
    handles = HandleTable(handles_max=2)
    handles.add("a")
    number = handles.add("b")
    with pytest.raises(LimitError, match="2 resources"):
        handles.add("c")
    handles.drop(number)
    assert handles.add("c") == 3
