"""What tests of several rooms need."""

import jaxtyping
import pytest


@pytest.fixture
def our_own_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the run-time type check of the test suite from speaking before our own errors do."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
