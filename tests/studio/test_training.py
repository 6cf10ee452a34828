"""A comparison that is training: its losses as they come, and then its results, in the same studio."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from whatwhere.comparison.run import Job, run
from whatwhere.comparison.settings import make_settings
from whatwhere.comparison.tasks import Expressions
from whatwhere.errors import CheckpointError, SettingError
from whatwhere.studio import export
from whatwhere.studio.api import about
from whatwhere.studio.api import replay as api
from whatwhere.studio.session import Session
from whatwhere.where.binding import Where

from ..running import error_of


@pytest.fixture
def begun(results: Path, tmp_path: Path) -> Path:
    """Make a comparison of which one run is finished, and one is at work."""
    folder = tmp_path / "begun"
    channels = folder / ".whatwhere-runs.1.part"
    channels.mkdir(parents=True)
    (folder / "runs").mkdir()
    shutil.copy(results / "comparison.json", folder)
    shutil.copy(results / "runs" / "learned-1.json", folder / "runs")

    def leave(step: int, held_out: float | None) -> None:
        if step == 3:
            raise KeyboardInterrupt

    settings = make_settings("expressions", None, dim=16, heads=2, feedforward=16, batch=8, steps=5, device="cpu")
    with pytest.raises(KeyboardInterrupt):
        run(Job("none", 0, Expressions((2, 3)), settings, channel=channels / "0"), leave)
    return folder


def test_losses_are_shown_while_runs_train_and_results_when_they_end(begun: Path, results: Path) -> None:
    session = Session.open(begun)
    assert [*about(session, {}).views] == ["training"]
    one, other = api.training(session, {}).runs
    assert (one.scheme, one.seed, one.losses[-1][0]) == ("learned", 1, 7)
    assert (
        one.losses
        == next(run for run in Session.open(results).results.runs if run.file.endswith("learned-1.safetensors")).losses
    )
    assert (other.scheme, other.steps, [step for step, _ in other.losses]) == ("none", 5, [1, 2])
    with pytest.raises(SettingError, match="is training"):
        export.render_page(session)
    assert "is training: export its results when it ends" in error_of("studio", begun, "--export", begun / "a.html")
    builds = session.checkpoint.builds = {"own": lambda dim, num_heads, max_length: Where()}
    (begun / "results.json").write_text("{")
    for _ in range(2):
        with pytest.raises(CheckpointError, match=r"results\.json"):
            api.training(session, {})
    shutil.copytree(results, begun, dirs_exist_ok=True)
    assert api.training(session, {}).finished
    assert session.checkpoint.builds == builds
    assert next(iter(about(session, {}).views)) == "compare"


def test_the_page_draws_them_and_opens_the_results(
    look: Callable[..., dict[str, Any]], begun: Path, results: Path
) -> None:
    seen = look(Session.open(begun), "training.mjs", results=str(results), folder=str(begun))
    assert seen["legend"] == ["learned, seed 1", "none, seed 0"]
    assert seen["grown"] > seen["drawn"]
    assert seen["opened"] == "Compare"
