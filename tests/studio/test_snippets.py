"""The Python below the figures: it imports public names alone, runs as it is, and computes what the figure shows."""

import ast
import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
from typer.testing import CliRunner

import whatwhere as ww
from whatwhere.cli import app
from whatwhere.studio.api import ask, biases, pipeline, positions, rotary
from whatwhere.studio.session import Session

IMPORTS = {"import numpy as np", "import torch", "import whatwhere as ww"}
STEPS = {"rows": "rows", "positions": "position_rows", "sum": "vectors", "rotation": "mapped_q", "score": "scores"}


def private_names(code: str) -> list[str]:
    """Return what a snippet names that is not public."""
    tree = ast.parse(code)
    lines = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)}
    result = sorted(lines - IMPORTS)
    for node in ast.walk(tree):
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.insert(0, node.attr)
            node = node.value
        if isinstance(node, ast.Name) and node.id == "ww" and parts and not _is_public(parts):
            result.append(".".join(["ww", *parts]))
    return result


def _is_public(parts: list[str]) -> bool:
    if parts[0] not in ww.__all__:
        return False
    module = getattr(ww, parts[0])
    if not isinstance(module, ModuleType) or len(parts) == 1:
        return True
    return parts[1] in getattr(module, "__all__", [name for name in vars(module) if not name.startswith("_")])


def run(code: str) -> Any:
    if code.startswith("whatwhere "):
        done = CliRunner().invoke(app, shlex.split(code)[1:])
        assert done.exit_code == 0, done.output
        return done.output
    names: dict[str, Any] = {}
    exec(code, names)
    last = ast.parse(code).body[-1]
    return eval(ast.unparse(last.targets[0] if isinstance(last, ast.Assign) else last), names)


def collected(look: Callable[..., dict[str, Any]], session: Session, *views: str) -> Mapping[str, list[Any]]:
    """Return the values of all snippets of some views, each checked for its names."""
    result = look(session, "snippets.mjs", views=views)
    assert result["complaints"] == []
    values: dict[str, list[Any]] = {}
    for view, snippets in result["snippets"].items():
        for code in snippets:
            assert code.startswith("whatwhere ") or not private_names(code), code
        values[view] = [run(code) for code in snippets]
    return values


def same(value: Any, right: Any, **tolerance: float) -> None:
    numbers = value.detach().numpy() if hasattr(value, "detach") else np.asarray(value)
    np.testing.assert_allclose(numbers.reshape(np.shape(right)), right, **({"rtol": 1e-6, "atol": 1e-7} | tolerance))


def check_pipeline(look: Callable[..., dict[str, Any]], session: Session, settings: Mapping[str, Any]) -> None:
    first: dict[str, Any] = {**pipeline.begin(session), **settings}
    steps: Any = pipeline.walk(session, first)
    query = urlencode(settings)
    views = {step: f"pipeline?{query}&step={step}" for step in ("tokens", *STEPS, "bias")}
    values = collected(look, session, *views.values())
    for read in values[views["tokens"]]:  # a command prints a line for each token
        ids = read if isinstance(read, list) else re.findall(r"^ +\d+ +\S+ +(\d+) ", read, re.M)
        assert [*map(int, ids)][: len(steps.ids)] == steps.ids.tolist()
    for step, field in STEPS.items():
        right = getattr(steps, field)
        snippets = values[views[step]]
        assert (right is None) == (not snippets)
        if right is not None:
            # Of a run there are two figures of queries and keys; the weights follow the scores.
            last = -2 if step == "score" or (step == "rotation" and steps.layer) else -1
            masked = np.where(np.isfinite(right), right, -np.inf)
            same(snippets[last], masked, rtol=1e-5)
            if step == "score":
                same(snippets[-1], np.exp(masked) / np.exp(masked).sum(-1, keepdims=True), rtol=1e-5)
    if steps.bias is not None:
        same(values[views["bias"]][0], np.where(np.isfinite(steps.bias), steps.bias, -np.inf))


@pytest.mark.parametrize(
    "settings",
    [
        {"scheme": "sinusoidal+rotary+alibi", "tokens": "words"},
        {"scheme": "learned", "tokens": "words", "seed": 3},
        {"scheme": "fire", "tokens": "loaded", "seed": 1, "text": "Max(1,2)"},
    ],
)
def test_the_pipeline_of_random_schemes(
    look: Callable[..., dict[str, Any]], fresh: Session, settings: dict[str, Any]
) -> None:
    check_pipeline(look, fresh, settings)


def test_the_pipeline_of_a_model(look: Callable[..., dict[str, Any]], real: Session) -> None:
    check_pipeline(look, real, {"scheme": "model", "head": 1})


def test_the_pipeline_of_a_run(look: Callable[..., dict[str, Any]], results: Path) -> None:
    check_pipeline(look, Session.open(results), {"scheme": "learned-1"})


def test_positions(look: Callable[..., dict[str, Any]], real: Session) -> None:
    views = {s: f"positions?scheme={s}&rows=32" for s in ("model", "sinusoidal", "rotary", "alibi", "t5")}
    values = collected(look, real, *views.values())
    for scheme, view in views.items():
        check_positions(real, scheme, values[view])


def check_positions(real: Session, scheme: str, values: list[Any]) -> None:
    shown = positions.positions(real, {**positions.begin(real), "scheme": scheme, "rows": 32})
    same(values[0], shown.fingerprint.values)
    if isinstance(shown.vectors, positions.PositionVectors):
        same(values[1], shown.fingerprint.values[:, 4:8])
        same(values[2], shown.vectors.cosines, atol=1e-6)
        same(values[3], shown.vectors.path)
        if shown.door == "input":
            same(values[5], shown.vectors.norms)
        if scheme == "sinusoidal":
            same(values[6], shown.wavelengths)
    assert len(values) == {"model": 6, "sinusoidal": 7, "rotary": 5}.get(scheme, 2)


def test_rotaries(look: Callable[..., dict[str, Any]], fresh: Session) -> None:
    views = {scaling: f"rotary?b=scaling%3D{scaling}" for scaling in rotary.SCALINGS[1:]}
    values = collected(look, fresh, *views.values())
    for scaling, view in views.items():
        wavelengths, agreement, slowdown = values[view]
        lab = rotary.lab(fresh, {"a": "", "b": f"scaling={scaling}", "claimed": 0})
        pairs = lab.sides[1].rotations
        same(wavelengths.wavelengths, pairs.spectrum.wavelengths)
        same(slowdown, pairs.spectrum.slowdown)
        same(agreement[[0, -1]], lab.agreement[[0, -1]])


def test_biases_of_the_catalogue(look: Callable[..., dict[str, Any]], fresh: Session) -> None:
    views = {s: f"biases?scheme={s}&head=1&tokens=8" for s in ("alibi", "t5", "kerple", "fire", "sandwich")}
    values = collected(look, fresh, *views.values())
    past = np.tril_indices(8)
    for scheme, view in views.items():
        ranges, matrix, curves = values[view]
        shown = biases.shown(fresh, {"scheme": scheme, "head": 1, "tokens": 8})
        same(matrix.detach()[past], shown.matrix[past])
        same(np.stack([*curves.values()])[:, shown.distances], shown.past)
        assert ranges.distance.tolist() == shown.ranges.distance.tolist()


def test_views_of_a_comparison(look: Callable[..., dict[str, Any]], results: Path) -> None:
    session = Session.open(results)
    values = collected(
        look, session, "replay?run=learned-0", "attention?run=learned-0", "biases", "positions?scheme=learned-0",
        "compare",
    )  # fmt: skip
    assert all(values.values())


def test_asking_a_comparison(look: Callable[..., dict[str, Any]], results: Path) -> None:
    session = Session.open(results)
    question = {"text": "Last(4,8)", "positions": "0,1,2,3,5,4"}
    view = f"ask?{urlencode(question)}&run=learned-1&seeds=1"
    answers, attention = collected(look, session, view)[view]
    right = ask.answers(session, {**question, "seeds": "1"})
    assert [each.correct_probability for each in answers] == [one.correct_probability for one in right.answers.answers]
    same(np.stack(attention), np.stack(right.answers.answers[right.runs.index("learned-1")].attention))


@pytest.mark.slow
def test_views_of_a_model(look: Callable[..., dict[str, Any]], real: Session) -> None:
    assert all(collected(look, real, "tokens?token=cat", "overview").values())


def test_views_without_a_file(look: Callable[..., dict[str, Any]], fresh: Session) -> None:
    collected(look, fresh, "rotary", "tokens?token=Max", "positions")
