"""Distance: the curve of every row of the catalogue, beside the reference and plain formulas."""

import csv
import io
import json
from collections.abc import Callable
from math import cos, log
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from whatwhere import catalogue, reference
from whatwhere.errors import SettingError
from whatwhere.report.text import number
from whatwhere.studio.api import distance as api
from whatwhere.studio.session import Session

SMALL = {"head_dim": 16, "heads": 4, "distances": 40}


def by_name(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Give the schemes by their names."""
    return {scheme["name"]: scheme for scheme in found["schemes"]}


@pytest.fixture(scope="module")
def t5(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """Open a model that has learned biases, of both its parts."""
    folder = tmp_path_factory.mktemp("t5")
    rng = np.random.default_rng(5)
    tensors = {
        f"{part}.block.0.layer.0.SelfAttention.relative_attention_bias.weight": rng.standard_normal((8, 3))
        for part in ("encoder", "decoder")
    }
    tensors["shared.weight"] = rng.standard_normal((9, 6))
    save_file({name: value.astype(np.float32) for name, value in tensors.items()}, folder / "model.safetensors")
    config = {
        "model_type": "t5", "vocab_size": 9, "d_model": 6, "num_heads": 3, "d_kv": 2, "d_ff": 8, "num_layers": 2,
        "num_decoder_layers": 2, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 20,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return Session.open(folder)


def test_every_row_of_the_catalogue_has_a_curve_or_says_why_not(fresh: Session) -> None:
    found = by_name(api.curves(fresh, SMALL))
    assert list(found) == list(catalogue)
    for name, scheme in found.items():
        if name == "none":
            assert scheme["missing"] == "no score depends on where a token stands"
            continue
        assert scheme["door"] == catalogue[name].door
        assert scheme["values"].shape == scheme["relative"].shape == (40,)
        assert np.isfinite(scheme["values"]).all()
        assert np.abs(scheme["relative"]).max() == pytest.approx(1.0)


def test_curves_are_those_of_the_formulas(fresh: Session) -> None:
    found = by_name(api.curves(fresh, SMALL | {"head": 2}))
    waves = reference.inverse_frequencies(64)
    likeness = [sum(cos(d * w) for w in waves) / 32 for d in range(40)]
    np.testing.assert_allclose(found["sinusoidal"]["values"], likeness, atol=1e-6)
    turned = [sum(cos(d * w) for w in reference.inverse_frequencies(16)) / 8 for d in range(40)]
    np.testing.assert_allclose(found["rotary"]["values"], turned, atol=1e-6)
    slope = reference.alibi_slopes(4)[2]
    np.testing.assert_allclose(found["alibi"]["values"], [-slope * d for d in range(40)])
    np.testing.assert_allclose(found["alibi"]["relative"], [np.exp(-slope * d) for d in range(40)], rtol=1e-6)
    # Of a kernel the share of its greatest: what YaRN multiplies by is gone.
    yarn = found["rotary-yarn"]
    magnitude = reference.yarn_magnitude(4.0)
    np.testing.assert_allclose(yarn["values"][0], magnitude**2, rtol=1e-6)
    np.testing.assert_allclose(yarn["relative"], yarn["values"] / magnitude**2, rtol=1e-6)


def test_biases_that_depend_on_what_tokens_say_are_asked_with_ones(fresh: Session) -> None:
    """FoX sums one gate a step, all alike; CoPE starts at nothing; Shaw's distances end at its clip."""
    found = by_name(api.curves(fresh, SMALL))
    steps = np.diff(found["fox"]["values"].astype(np.float64))
    np.testing.assert_allclose(steps, steps[0], atol=1e-5)
    assert steps[0] == pytest.approx(-log(2), abs=0.3)  # at the start a gate is nearly one half
    assert not found["cope"]["values"].any()
    shaw = found["shaw"]["values"]
    assert len(set(shaw[:17].tolist())) == 17
    assert set(shaw[16:].tolist()) == {shaw[16]}
    assert found["fox"]["label"] == "bias for a query, keys and vectors of ones"


def test_what_is_drawn_depends_on_the_seed_alone(fresh: Session) -> None:
    first, again, other = (by_name(api.curves(fresh, SMALL | {"seed": seed})) for seed in (3, 3, 4))
    for name, row in catalogue.items():
        if name == "none" or not row.learned or name in ("cope", "ssmax", "pope"):
            continue
        np.testing.assert_array_equal(first[name]["values"], again[name]["values"])
        assert not np.array_equal(first[name]["values"], other[name]["values"]), name


def test_the_models_own_table_stands_first(real: Session, minilm: Path) -> None:
    found = api.curves(real, {"distances": 600})["schemes"][0]
    assert (found["name"], found["own"], found["door"]) == (
        "this model: embeddings.position_embeddings.weight", True, "input",
    )  # fmt: skip
    table = load_file(minilm / "model.safetensors")["embeddings.position_embeddings.weight"].astype(np.float64)
    units = table / np.linalg.norm(table, axis=1, keepdims=True)
    cosines = units @ units.T
    assert found["values"].shape == (512,)  # it ends there
    for distance in (0, 1, 16, 100, 511):
        assert found["values"][distance] == pytest.approx(np.diagonal(cosines, distance).mean(), abs=1e-6)


def test_the_models_own_biases_stand_first(t5: Session) -> None:
    decoder, encoder = api.curves(t5, {"distances": 64, "head": 1})["schemes"][:2]
    assert decoder["name"] == "this model: T5, decoder, layers 0–1"
    for scheme, part in ((decoder, "decoder"), (encoder, "encoder")):
        table = t5.checkpoint.array(f"{part}.block.0.layer.0.SelfAttention.relative_attention_bias.weight")
        right = reference.t5_bias(table, np.array([63]), np.arange(64), 20, part == "encoder")[1, 0, ::-1]
        np.testing.assert_array_equal(scheme["values"], right.astype(np.float32))


def test_results_show_what_training_made(results: Path) -> None:
    written = json.loads((results / "results.json").read_text(encoding="utf-8"))["schemes"]
    found = [scheme for scheme in api.curves(Session.open(results), {"distances": 4})["schemes"] if scheme["own"]]
    assert [scheme["name"] for scheme in found] == ["trained: learned", "trained: rotary+alibi"]
    assert [scheme["door"] for scheme in found] == ["input", "query_key"]
    for scheme in found:
        curve = next(iter(written[scheme["name"].removeprefix("trained: ")]["by_distance"]["curves"].values()))
        np.testing.assert_allclose(scheme["values"], curve[:4], rtol=1e-6)


def test_results_that_are_not_as_written_have_no_curves() -> None:
    kept = {"label": "cosine of two rows", "curves": {"from position 0": [1.0, None]}}
    schemes = {
        "learned": {"doors": ["input"], "by_distance": kept},
        "none": {"doors": [], "by_distance": None},
        "broken": {"doors": ["input"], "by_distance": {"curves": [3]}},
    }
    found = list(api._trained(schemes, {}, 40, 3))
    assert [scheme["name"] for scheme in found] == ["trained: learned"]
    np.testing.assert_array_equal(found[0]["values"], np.array([1.0, np.nan], np.float32))
    assert list(api._trained("nonsense", {}, 40, 0)) == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"heads": 0}, "heads must be a whole number from 1 to 64"),
        ({"distances": 5000}, "distances must be a whole number from 2 to 4,096"),
        ({"head_dim": 1 << 20}, "head_dim must be a whole number"),
        ({"schemes": "rotary"}, "no setting 'schemes'"),
    ],
)
def test_what_the_page_sends_is_checked(fresh: Session, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        api.curves(fresh, settings)


def test_sizes_that_a_scheme_refuses_are_said_at_that_scheme(fresh: Session) -> None:
    found = by_name(api.curves(fresh, {"head_dim": 3, "heads": 2, "distances": 8}))
    assert "head_dim=3" in found["rotary"]["missing"]
    assert "values" in found["alibi"]


def test_the_page_draws_what_the_api_answers(look: Callable[..., dict[str, Any]], t5: Session) -> None:
    found = look(t5, "distance.mjs")
    right = by_name(api.curves(t5, {"distances": 64, "head": 1}))
    own = [f"this model: T5, {part}, layers 0–1" for part in ("decoder", "encoder")]
    assert found["groups"][0] == "Of what is open"
    assert found["chosen"] == [*own, "sinusoidal", "rotary", "alibi", "sandwich"]
    assert found["figures"][0].startswith("All on one axis")
    assert len(found["figures"]) == 4
    rows = list(csv.DictReader(io.StringIO(found["csv"].removeprefix("\ufeff"))))
    for name in found["chosen"]:
        np.testing.assert_array_equal([float(row[name]) for row in rows], right[name]["relative"].astype(np.float64))
    assert found["then"] == [*own, "sinusoidal", "rotary", "alibi", "sandwich", "fox"]
    assert "fox" in found["address"]
    assert f"rotary {number(float(right['rotary']['relative'][1]), 4)}" in found["read"]
    assert found["light"] == found["complaints"] == []
    assert (found["small"]["violations"], found["small"]["complaints"]) == ([], [])
    assert found["small"]["overflow"] <= 0
    hosts = {urlsplit(url).hostname for url in found["requests"] if not url.startswith(("data:", "blob:"))}
    assert hosts == {"127.0.0.1"}
