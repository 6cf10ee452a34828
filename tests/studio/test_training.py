"""A comparison that is training: its losses as they come, and then its results, in the same studio."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from whatwhere.comparison.results import LossesSoFar
from whatwhere.comparison.run import Job, run, write_losses
from whatwhere.comparison.settings import make_settings
from whatwhere.comparison.tasks import Expressions
from whatwhere.errors import CheckpointError, SettingError
from whatwhere.report.figures import looks
from whatwhere.studio import export
from whatwhere.studio.api import about
from whatwhere.studio.api import replay as api
from whatwhere.studio.session import Session
from whatwhere.where.binding import Where

from ..running import error_of


@pytest.fixture
def begun(results: Path, tmp_path: Path) -> Path:
    """Make a comparison of which one run is finished, one is at work, and one waits."""
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
        run(Job("none", 0, Expressions((2, 3)), settings, channel=channels / "1"), leave)
    write_losses(
        channels / "0", *(LossesSoFar(*each) for each in (("none", 0, 5), ("learned", 1, 7), ("learned", 0, 7)))
    )
    return folder


def test_losses_are_shown_while_runs_train_and_results_when_they_end(begun: Path, results: Path) -> None:
    session = Session.open(begun)
    assert [*about(session, {}).views] == ["training"]
    training = api.training(session, {})
    other, one, waits = training.runs
    assert training.looks == looks(["none", "learned"])
    assert (one.scheme, one.seed, one.losses[-1][0], one.finished) == ("learned", 1, 7, True)
    assert waits == LossesSoFar("learned", 0, 7)
    finished = Session.open(results).results.runs
    measured = next(run for run in finished if run.file.endswith("learned-1.safetensors"))
    assert (one.losses, one.held_out) == (measured.losses, measured.held_out)
    assert (other.scheme, other.steps, other.finished) == ("none", 5, False)
    assert [step for step, _ in other.losses] == [1, 2]
    assert [step for step, _ in other.held_out] == [0, 1, 2]
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
    assert seen["legend"] == ["none", "learned"]
    assert seen["runs"] == ["none, seed 0", "learned, seed 1"]
    assert seen["answer"].startswith("1 of 3 runs finished, 47 % of all steps")
    assert seen["states"] == ["training", "finished", "waiting"]
    assert seen["held"] == seen["legend"]
    color, first, second = seen["curves"]
    assert first[0] == second[0] != color[0], "a color for each scheme"
    assert first[1] != second[1], "strokes for each seed"
    assert seen["grown"] > seen["drawn"]
    assert [bands for _, bands in seen["medians"]] == [1, 1], "of each scheme, from the least to the greatest"
    middle, low, high = map(float, seen["table"][2][4:])  # of both seeds of learned, after three steps
    assert low < high
    assert middle == pytest.approx((low + high) / 2, abs=0.006)
    assert seen["opened"] == "Compare"
