"""Each test of Golem's guests runs three times: as it is; with a replay beside the living worker
after every invocation; and with a simulated crash after every invocation, so that each call meets a
worker that was rebuilt.
"""

import pytest

from tests.conformance.golem.guest import Mode


@pytest.fixture(params=["live", "replayed", "crashed"])
def mode(request: pytest.FixtureRequest) -> Mode:
    return request.param  # type: ignore[no-any-return]
