import pytest

from executor.wasm.values import Ok


@pytest.mark.parametrize("interface", ["wasi:config/store", "wasi:config/runtime"])
def test_configuration_is_read_by_key_or_whole_in_the_order_of_keys(guest, interface):
    guest.state.config = {"b": "2", "a": "1"}
    assert guest.call(f"{interface}.get", "b") == Ok("2")
    assert guest.call(f"{interface}.get", "c") == Ok(None)
    assert guest.call(f"{interface}.get-all") == Ok([("a", "1"), ("b", "2")])


def test_a_message_is_logged_at_its_level_with_what_it_is_about(guest):
    guest.call("wasi:logging/logging.log", "debug", "disk", "é")
    guest.call("wasi:logging/logging.log", "info", "", "b")
    assert guest.session.logged == [("debug", "é".encode(), "disk"), ("info", b"b")]
