"""What `python -m reliability` tries, in small: nothing is lost. Marked slow, as often as its default."""

import subprocess
import sys
from pathlib import Path

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


LONG = {"fuzz", "kills", "memory"}
"""A minute or more even in small."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in LONG else []) for name in CAMPAIGNS]
)
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


def test_other_tests_that_fail_with_our_parts_alone_are_listed(tmp_path: Path) -> None:
    (tmp_path / "test_theirs.py").write_text(
        "from torch import nn\n"
        "def test_of_a_name():\n    assert type(nn.Embedding(3, 2)).__name__ == 'Embedding'\n"
        "def test_of_a_shape():\n    assert isinstance(nn.Embedding(3, 2), nn.Module)\n"
        "def test_that_fails():\n    assert not nn.Embedding(3, 2).weight.shape\n"
        "def test_of_parts(subtests):\n    for name in ('Other', 'Embedding'):\n        with subtests.test():\n"
        "            assert type(nn.Embedding(3, 2)).__name__ == name\n",
        encoding="utf-8",
    )
    command = (sys.executable, "-m", "reliability.other_tests", str(tmp_path), "embedding", "--", "-n", "0")
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "without: {'passed': 2, 'failed': 2}" in done.stdout
    assert "fails with them alone: 2\n  test_theirs::test_of_a_name: AssertionError" in done.stdout
    assert "test_theirs::test_of_parts: AssertionError: assert 'TokenEmbedding'" in done.stdout
