import threading

from executor.wasm.lane import Lanes


def test_lanes_close_while_their_ticker_is_between_two_looks():
    for _ in range(20):
        lanes = Lanes(lambda: None, 1)
        (lane,) = lanes.lanes
        lane.post(lane.mark_busy)
        lane.post(lambda: None)
        lane._ask_for_ticks()
        closing = threading.Thread(target=lanes.close, daemon=True)
        closing.start()
        closing.join(timeout=5)
        assert not closing.is_alive()
