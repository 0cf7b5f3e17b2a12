"""What guests may open leaves the process its own descriptors."""

import resource

import pytest

from executor.services.descriptors import descriptors_for_guests


@pytest.mark.parametrize(
    ("soft", "found"),
    [(1_024, 256), (20_000, 1_000), (3, 1), (resource.RLIM_INFINITY, 1_000)],
)
def test_guests_take_a_quarter_at_most(monkeypatch, soft, found):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))
    assert descriptors_for_guests(1_000) == found
