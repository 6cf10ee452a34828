"""What `python -m reliability` tries, in small: nothing is lost. Marked slow, as often as its default."""

import pytest

from reliability.campaigns import CAMPAIGNS
from reliability.findings import Trial, read_campaigns

from .studio.conftest import require_browser


@pytest.fixture(autouse=True)
def _skip_what_needs_another_system(request: pytest.FixtureRequest) -> None:
    name = getattr(request.node, "callspec", None) and request.node.callspec.params["name"]
    if name and not CAMPAIGNS[name].runs_here():
        pytest.skip(f"made for {CAMPAIGNS[name].system} alone")
    if name == "access":
        require_browser()
    if name == "fuzz":
        pytest.importorskip("atheris", reason="made for Linux on x86-64 alone")


def failures(trials: tuple[Trial, ...]) -> list[str]:
    """Return what was lost, of trials that each tried something."""
    assert trials
    assert all(trial.times > 0 for trial in trials)
    return [f"{trial.tried}: {trial.lost} of {trial.times}: {trial.failures}" for trial in trials if trial.lost]


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_a_few_attempts_lose_nothing(name: str) -> None:
    assert not failures(CAMPAIGNS[name].run(CAMPAIGNS[name].few))


@pytest.mark.slow
@pytest.mark.parametrize("name", CAMPAIGNS)
def test_all_attempts_lose_nothing(name: str) -> None:
    assert not failures(CAMPAIGNS[name].run(CAMPAIGNS[name].times))


def test_the_page_has_every_campaign_and_none_lost_anything() -> None:
    found = dict(read_campaigns())
    assert set(found) == set(CAMPAIGNS)
    for name, campaign in found.items():
        assert not failures(campaign.trials)
        assert campaign.command.startswith(f"python -m reliability {name}")
