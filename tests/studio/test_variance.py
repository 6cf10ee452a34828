"""The variance split: the shares that inspection finds, and those of a table that is added to nothing."""

import csv
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from whatwhere.analysis.position_embedding import variance
from whatwhere.analysis.subject import Subject
from whatwhere.errors import SettingError, WhatWhereError
from whatwhere.studio.api import QUERIES
from whatwhere.studio.api import variance as api
from whatwhere.studio.session import Session

MODEL = {"tokens": "loaded", "scheme": "model"}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """Open a small model with learned positions: fewer rows than are sampled, so that the split is exact."""
    rng = np.random.default_rng(6)
    path = tmp_path_factory.mktemp("small") / "model.safetensors"
    tables = {"wte.weight": rng.standard_normal((30, 8)), "wpe.weight": 0.3 * rng.standard_normal((20, 8))}
    save_file({name: table.astype(np.float32) for name, table in tables.items()}, path)
    return Session.open(path)


def shares(session: Session, settings: dict[str, Any]) -> api.VarianceShares:
    """Return the shares of an input that positions are added to."""
    result = api.shares(session, settings).shares
    assert result is not None
    return result


def split(x: np.ndarray) -> list[float]:
    """Split the variance of (tokens, positions, dim), as a textbook of two-way analysis does."""
    mean = x.mean(axis=(0, 1))
    by_token, by_position = x.mean(axis=1, keepdims=True) - mean, x.mean(axis=0, keepdims=True) - mean
    rest = x - mean - by_token - by_position
    parts = [(part**2).sum(axis=-1).mean() for part in (by_token, by_position, rest)]
    return [float(part / sum(parts)) for part in parts]


@pytest.mark.parametrize("normalize", [False, True])
def test_the_split_is_a_two_way_analysis_of_variance(small: Session, normalize: bool) -> None:
    result = shares(small, MODEL | {"normalize": normalize, "scale": 0.5, "rows": 16})
    tables = load_file(small.checkpoint.path)
    x = 0.5 * tables["wte.weight"][:, None].astype(np.float64) + tables["wpe.weight"][:16]
    if normalize:
        x = (x - x.mean(axis=-1, keepdims=True)) / x.std(axis=-1, keepdims=True)
    np.testing.assert_allclose(
        [getattr(result, name) for name in ("token", "position", "interaction")], split(x), atol=1e-6
    )
    assert result.windows.tolist() == [[0, 8], [8, 16], [1, 16]]
    np.testing.assert_allclose(result.by_window[1], split(x[:, 8:]), atol=1e-6)
    middle = result.scales.tolist().index(1.0)
    np.testing.assert_allclose(result.by_scale[middle], split(x), atol=1e-6)
    assert (np.diff(result.by_scale[:, 0]) > 0).all()
    np.testing.assert_allclose(result.by_scale.sum(axis=1), 1)


def test_of_the_real_model_it_is_what_inspection_says(real: Session) -> None:
    result, right = shares(real, MODEL), variance(Subject(real.checkpoint, 0, lambda step: None))
    for name in ("token", "position", "interaction"):
        assert getattr(result, name) == pytest.approx(getattr(right, name), rel=1e-5)
    assert result.mean_abs_cosine == pytest.approx(right.mean_abs_cosine, rel=1e-5)
    assert (result.norm, result.added) == ("embeddings.LayerNorm.weight", True)
    bare = shares(real, MODEL | {"normalize": False, "rows": 64})
    assert (bare.norm, bare.interaction) == (None, pytest.approx(0, abs=1e-9))


def test_without_an_input_scheme_the_token_explains_all(fresh: Session) -> None:
    result = api.shares(fresh, {"tokens": "words", "scheme": "rotary+alibi", "dim": 16})
    assert "position enters in the attention, by Rotary and ALiBi" in result.missing
    assert "no position enters anywhere" in api.shares(fresh, {"tokens": "words", "scheme": "none"}).missing


def test_runs_and_fresh_tables(results: Path, fresh: Session) -> None:
    result = shares(Session.open(results), {"tokens": "loaded", "scheme": "learned-1", "normalize": False})
    saved = load_file(results / "models" / "learned-1.safetensors")
    x = saved["input.tokens.weight"][:, None].astype(np.float64) + saved["input.where.input.weight"]
    np.testing.assert_allclose([getattr(result, name) for name in ("token", "position")], split(x)[:2], atol=1e-6)
    assert result.rows == len(saved["input.where.input.weight"])
    sampled = api.shares(fresh, {"tokens": "words", "scheme": "sinusoidal", "dim": 8, "rows": 32})
    assert (sampled.tensor, sampled.dim) == (None, 8)
    assert sampled.shares is not None
    assert sampled.shares.tokens == 512


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"tokens": "loaded", "scheme": "sinusoidal", "scale": 0}, SettingError, "scale must be a number"),
        ({"tokens": "loaded", "scheme": "sinusoidal", "scale": True}, SettingError, "scale must be a number"),
        ({"tokens": "loaded", "scheme": "sinusoidal", "scale": float("nan")}, SettingError, "scale must be a number"),
        ({"tokens": "loaded", "scheme": "sinusoidal", "rows": 5000}, SettingError, "from 2 to 4,096"),
        ({"tokens": "words", "scheme": "sinusoidal", "dim": 7}, WhatWhereError, "even"),
        ({"tokens": "loaded", "scheme": "model"}, SettingError, "is not known: there is no configuration"),
    ],
)
def test_what_the_page_sends_is_checked(fresh: Session, settings: dict[str, Any], error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        QUERIES["variance.shares"](fresh, settings)


def test_the_page_draws_what_the_api_answers(look: Callable[..., dict[str, Any]], small: Session) -> None:
    result = look(small, "variance.mjs")
    right = shares(small, MODEL)
    written = [f"{100 * getattr(right, name):.1f} %" for name in ("token", "position", "interaction")]
    assert result["sentence"] == f"{written[0]} token, {written[1]} position, {written[2]} their interaction."
    assert result["bars"][0] == f"token {written[0]}, position {written[1]}, both {written[2]}"
    assert len(result["bars"]) == 1 + len(right.windows)
    rows = list(csv.DictReader(io.StringIO(result["csv"].removeprefix("\ufeff"))))
    np.testing.assert_allclose([float(row["token"]) for row in rows], 100 * right.by_scale[:, 0], rtol=1e-12)
    stated = re.fullmatch(r"Both explain equally much at a factor of about ([\d.]+); above .*", result["balance"])
    assert stated
    balanced = shares(small, MODEL | {"scale": float(stated[1])})
    assert balanced.token == pytest.approx(balanced.position, abs=0.05)
    larger = shares(small, MODEL | {"scale": 4})
    assert result["larger"].startswith(f"{100 * larger.token:.1f} % token")
    assert "scale=4" in result["address"]
    assert "no position enters anywhere" in result["none"]
    assert result["wrong"] == 0
    assert result["violations"] == result["complaints"] == []
    assert (result["small"]["violations"], result["small"]["complaints"]) == ([], [])
    assert result["small"]["overflow"] <= 0
    hosts = {urlsplit(url).hostname for url in result["requests"] if not url.startswith(("data:", "blob:"))}
    assert hosts == {"127.0.0.1"}
