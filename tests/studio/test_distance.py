"""Distance: the curves of all schemes against the reference and plain formulas."""

import csv
import io
import json
import shutil
from collections.abc import Callable
from math import cos, log
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from whatwhere import catalogue, reference
from whatwhere.comparison.results import DistanceCurves, SchemeView
from whatwhere.errors import ResultsError, SettingError
from whatwhere.records import Missing, sealed
from whatwhere.report.section import Table
from whatwhere.report.text import number
from whatwhere.studio.api import distance as api
from whatwhere.studio.session import Session

SMALL = {"head_dim": 16, "heads": 4, "distances": 40}


def by_name(answer: api.SchemeCurves) -> dict[str, api.SchemeCurve]:
    """Return the schemes by their names."""
    return {scheme.name: scheme for scheme in answer.schemes}


def curve(scheme: api.SchemeCurve) -> api.DistanceCurve:
    """Return the curve of a scheme that has one."""
    assert isinstance(scheme.curve, api.DistanceCurve)
    return scheme.curve


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


def test_every_entry_of_the_catalogue_has_a_curve_or_a_reason(fresh: Session) -> None:
    schemes = by_name(api.curves(fresh, SMALL))
    assert list(schemes) == list(catalogue)
    for name, scheme in schemes.items():
        if name == "none":
            assert scheme.curve == Missing("no attention score depends on positions")
            continue
        assert (scheme.door, scheme.own) == (catalogue[name].door, False)
        assert curve(scheme).values.shape == curve(scheme).relative.shape == (40,)
        assert np.isfinite(curve(scheme).values).all()
        assert np.abs(curve(scheme).relative).max() == pytest.approx(1.0)


def test_curves_are_those_of_the_formulas(fresh: Session) -> None:
    curves = {name: scheme.curve for name, scheme in by_name(api.curves(fresh, SMALL | {"head": 2})).items()}
    frequencies = reference.inverse_frequencies(64)
    similarity = [sum(cos(d * w) for w in frequencies) / 32 for d in range(40)]
    np.testing.assert_allclose(curves["sinusoidal"].values, similarity, atol=1e-6)
    kernel = [sum(cos(d * w) for w in reference.inverse_frequencies(16)) / 8 for d in range(40)]
    np.testing.assert_allclose(curves["rotary"].values, kernel, atol=1e-6)
    slope = reference.alibi_slopes(4)[2]
    np.testing.assert_allclose(curves["alibi"].values, [-slope * d for d in range(40)])
    np.testing.assert_allclose(curves["alibi"].relative, [np.exp(-slope * d) for d in range(40)], rtol=1e-6)
    # A relative kernel does not contain YaRN's magnitude.
    yarn = curves["rotary-yarn"]
    magnitude = reference.yarn_magnitude(4.0)
    np.testing.assert_allclose(yarn.values[0], magnitude**2, rtol=1e-6)
    np.testing.assert_allclose(yarn.relative, yarn.values / magnitude**2, rtol=1e-6)


def test_biases_that_depend_on_content_are_computed_for_ones(fresh: Session) -> None:
    """FoX adds one log gate for each token, all alike; CoPE is 0 before training; Shaw's distances end at its clip."""
    schemes = by_name(api.curves(fresh, SMALL))
    steps = np.diff(curve(schemes["fox"]).values.astype(np.float64))
    np.testing.assert_allclose(steps, steps[0], atol=1e-5)
    assert steps[0] == pytest.approx(-log(2), abs=0.3)  # before training a gate is nearly one half
    assert not curve(schemes["cope"]).values.any()
    shaw = curve(schemes["shaw"]).values
    assert len(set(shaw[:17].tolist())) == 17
    assert set(shaw[16:].tolist()) == {shaw[16]}
    assert curve(schemes["fox"]).label == "bias for a query, keys and vectors of ones"


def test_random_parameters_depend_on_the_seed_alone(fresh: Session) -> None:
    first, again, other = (by_name(api.curves(fresh, SMALL | {"seed": seed})) for seed in (3, 3, 4))
    for name, entry in catalogue.items():
        if name == "none" or not entry.learned or name in ("carope", "cope", "pope", "rotary-learned", "ssmax"):
            continue
        np.testing.assert_array_equal(curve(first[name]).values, curve(again[name]).values)
        assert not np.array_equal(curve(first[name]).values, curve(other[name]).values), name


def test_the_models_own_table_is_first(real: Session, minilm: Path) -> None:
    scheme = api.curves(real, {"distances": 600}).schemes[0]
    assert (scheme.id, scheme.name, scheme.own, scheme.door) == (
        "own-0", "this model: embeddings.position_embeddings.weight", True, "input",
    )  # fmt: skip
    table = load_file(minilm / "model.safetensors")["embeddings.position_embeddings.weight"].astype(np.float64)
    units = table / np.linalg.norm(table, axis=1, keepdims=True)
    cosines = units @ units.T
    values = curve(scheme).values
    assert values.shape == (512,), "the table ends there"
    for distance in (0, 1, 16, 100, 511):
        assert values[distance] == pytest.approx(np.diagonal(cosines, distance).mean(), abs=1e-6)


def test_the_models_own_biases_are_first(t5: Session) -> None:
    decoder, encoder = api.curves(t5, {"distances": 64, "head": 1}).schemes[:2]
    assert decoder.name == "this model: T5, decoder, layers 0–1"
    for scheme, part in ((decoder, "decoder"), (encoder, "encoder")):
        table = t5.checkpoint.array(f"{part}.block.0.layer.0.SelfAttention.relative_attention_bias.weight")
        right = reference.t5_bias(table, np.array([63]), np.arange(64), 20, part == "encoder")[1, 0, ::-1]
        np.testing.assert_array_equal(curve(scheme).values, right.astype(np.float32))


def test_of_results_the_trained_schemes_are_first(results: Path) -> None:
    written = json.loads((results / "results.json").read_text(encoding="utf-8"))["schemes"]
    own = [scheme for scheme in api.curves(Session.open(results), {"distances": 4}).schemes if scheme.own]
    assert [scheme.name for scheme in own] == ["trained: learned", "trained: rotary+alibi"]
    assert [scheme.door for scheme in own] == ["input", "query_key"]
    for scheme in own:
        right = next(iter(written[scheme.name.removeprefix("trained: ")]["by_distance"]["curves"].values()))
        np.testing.assert_allclose(curve(scheme).values, right[:4], rtol=1e-6)


def test_schemes_without_a_door_or_a_curve_are_skipped() -> None:
    measured = DistanceCurves("cosine of two rows", (0, 1), {"from position 0": (1.0, None)})
    schemes = {
        "learned": SchemeView(("input",), None, measured),
        "none": SchemeView((), None, None),
        "odd": SchemeView((), None, measured),
        "empty": SchemeView(("input",), None, DistanceCurves("cosine of two rows", (), {})),
    }
    (scheme,) = api._trained(schemes, 40, 3)
    assert scheme.name == "trained: learned"
    np.testing.assert_array_equal(curve(scheme).values, np.array([1.0, np.nan], np.float32))


def test_damaged_results_are_refused(results: Path, tmp_path: Path) -> None:
    shutil.copytree(results, tmp_path / "damaged")
    file = tmp_path / "damaged" / "results.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    content["schemes"]["learned"]["by_distance"]["curves"] = [3]
    file.write_text(json.dumps(sealed(content)), encoding="utf-8")
    with pytest.raises(ResultsError, match="does not hold what was expected"):
        api.curves(Session.open(tmp_path / "damaged"), {})


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


def test_a_scheme_that_refuses_the_sizes_has_a_reason(fresh: Session) -> None:
    schemes = by_name(api.curves(fresh, {"head_dim": 3, "heads": 2, "distances": 8}))
    assert isinstance(schemes["rotary"].curve, Missing)
    assert "head_dim=3" in schemes["rotary"].curve.missing
    assert isinstance(schemes["alibi"].curve, api.DistanceCurve)


def test_the_exported_table_has_the_curves_at_powers_of_two(t5: Session) -> None:
    (section,) = api.exported(t5).sections
    (table,) = section.parts
    assert isinstance(table, Table)
    assert [row[0] for row in table.rows] == ["0", *(str(1 << n) for n in range(10))]
    shown = by_name(api.curves(t5, {"head": 3, "heads": 8, "head_dim": 64, "distances": 1024}))
    assert len(table.columns) == 1 + 2 + 4
    for column, heading in enumerate(table.columns[1:], 1):
        name = heading.rpartition(": ")[0]
        values = curve(shown[name]).values.tolist()
        assert [row[column] for row in table.rows] == [number(values[int(row[0])]) for row in table.rows]


def test_the_page_draws_what_the_api_answers(look: Callable[..., dict[str, Any]], t5: Session) -> None:
    result = look(t5, "distance.mjs")
    right = by_name(api.curves(t5, {"distances": 64, "head": 1}))
    own = [f"this model: T5, {part}, layers 0–1" for part in ("decoder", "encoder")]
    assert result["groups"][0] == "Of what is open"
    assert result["chosen"] == [*own, "sinusoidal", "rotary", "alibi", "sandwich"]
    assert result["figures"][0].startswith("All on one axis")
    assert len(result["figures"]) == 4
    rows = list(csv.DictReader(io.StringIO(result["csv"].removeprefix("\ufeff"))))
    for name in result["chosen"]:
        np.testing.assert_array_equal(
            [float(row[name]) for row in rows], curve(right[name]).relative.astype(np.float64)
        )
    assert result["then"] == [*own, "sinusoidal", "rotary", "alibi", "sandwich", "fox"]
    assert "fox" in result["address"]
    assert f"rotary {number(float(curve(right['rotary']).relative[1]))}" in result["read"]
    assert result["light"] == result["complaints"] == []
    assert (result["small"]["violations"], result["small"]["complaints"]) == ([], [])
    assert result["small"]["overflow"] <= 0
    hosts = {urlsplit(url).hostname for url in result["requests"] if not url.startswith(("data:", "blob:"))}
    assert hosts == {"127.0.0.1"}
