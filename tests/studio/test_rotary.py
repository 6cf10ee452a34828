"""The rotary lab: beside the reference in plain loops, and beside what is known of Llama 3.1."""

from collections.abc import Callable
from math import pi
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from whatwhere import reference
from whatwhere.analysis.rotary import rotary_agreement, rotary_spectrum
from whatwhere.studio.api import rotary as api
from whatwhere.studio.schemes import scheme_of
from whatwhere.studio.session import Session

from .conftest import csv_rows, opened

LLAMA = {
    "model_type": "llama", "vocab_size": 8, "hidden_size": 1024, "num_attention_heads": 8, "num_hidden_layers": 3,
    "head_dim": 128, "max_position_embeddings": 131_072, "rope_theta": 500_000.0,
    "rope_scaling": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
}  # fmt: skip
PHI = {
    "model_type": "phi3", "vocab_size": 8, "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2,
    "max_position_embeddings": 8192, "original_max_position_embeddings": 1024, "rope_theta": 10_000.0,
    "pad_token_id": 0,
    "rope_scaling": {"type": "longrope", "short_factor": [1, 1.1, 1.2, 1.3], "long_factor": [2, 3, 5, 9]},
}  # fmt: skip
QWEN = {
    "model_type": "qwen", "vocab_size": 8, "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2,
    "kv_channels": 8, "intermediate_size": 32, "max_position_embeddings": 8192, "seq_length": 2048,
    "rotary_emb_base": 10_000.0, "rotary_pct": 1.0, "use_dynamic_ntk": True, "use_logn_attn": False,
}  # fmt: skip
GEMMA = {
    "model_type": "gemma3_text", "vocab_size": 8, "hidden_size": 16, "num_attention_heads": 2, "head_dim": 8,
    "num_key_value_heads": 1, "num_hidden_layers": 4, "max_position_embeddings": 4096, "rope_theta": 1_000_000.0,
    "rope_local_base_freq": 10_000.0, "sliding_window": 64, "sliding_window_pattern": 2,
}  # fmt: skip


def of_layers(folder: Path, config: dict[str, Any]) -> Session:
    return opened(folder, config, **{"model.embed_tokens.weight": np.ones((8, config["hidden_size"]))})


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Session:
    return of_layers(tmp_path_factory.mktemp("llama"), LLAMA)


SETTINGS = "head_dim=48 rotary_dim=40 theta=20000 original_length=512 factor=6"


@pytest.mark.parametrize(
    ("said", "right"),
    [
        ("scaling=none", reference.inverse_frequencies(40, 20_000.0)),
        ("scaling=dynamic-ntk doubling=true", reference.dynamic_ntk_frequencies(40, 20_000.0, 6.0, 512, 2000, True)),
        ("scaling=yarn beta_fast=8 beta_slow=2", reference.yarn_frequencies(40, 20_000.0, 6.0, 512, 8.0, 2.0)),
        (
            "scaling=llama3 low_frequency_factor=0.5 high_frequency_factor=9",
            reference.llama3_frequencies(40, 20_000.0, 6.0, 512, 0.5, 9.0),
        ),
        ("scaling=proportional share=0.3", reference.proportional_frequencies(40, 20_000.0, 0.3, 6.0)),
    ],
)
def test_every_scaling_rotates_as_the_reference_does(fresh: Session, said: str, right: list[float]) -> None:
    result = api.lab(fresh, {"a": f"{SETTINGS} {said}", "b": f"{SETTINGS} scaling=none", "claimed": 2000})
    side, plain = result.sides[0], reference.inverse_frequencies(40, 20_000.0)
    assert side.problem is None
    spectrum = rotary_spectrum(np.array(right), np.array(plain), 512, 2000)
    for name in ("wavelengths", "slowdown", "rotations_claimed", "partial", "constant", "unseen"):
        np.testing.assert_allclose(getattr(side.rotations.spectrum, name), getattr(spectrum, name), rtol=1e-12)
    assert (result.distances[0], result.distances[-1]) == (1, 1999)
    agree = rotary_agreement(np.array(right), np.array(plain), result.distances)
    np.testing.assert_allclose(result.agreement, agree, atol=1e-9)
    np.testing.assert_allclose(side.rotations.agreement, agree, atol=1e-9)
    np.testing.assert_allclose(result.sides[1].rotations.agreement, 1.0)


def test_the_lab_begins_with_the_models_own_settings_and_the_same_unscaled(llama: Session) -> None:
    result = api.lab(llama, {})
    one, other = result.sides
    assert result.missing is None
    assert (one.scaling, other.scaling, result.claimed) == ("llama3", "none", 131_072)
    assert {parameter.name: parameter.value for parameter in one.parameters} == {
        "head_dim": 128, "rotary_dim": 128, "theta": 500_000.0, "original_length": 8192, "factor": 8.0,
        "low_frequency_factor": 1.0, "high_frequency_factor": 4.0,
    }  # fmt: skip
    right = reference.llama3_frequencies(128, 500_000.0, 8.0, 8192, 1.0, 4.0)
    np.testing.assert_allclose(one.rotations.spectrum.wavelengths, 2 * pi / np.array(right), rtol=1e-12)
    # By hand: pair i of 64 needs 2 pi 500000^(i/64) positions for a rotation.
    wavelengths = [2 * pi * 500_000 ** (i / 64) for i in range(64)]
    for side in (one, other):
        assert side.rotations.spectrum.partial.sum() == sum(each > 8192 for each in wavelengths)
    assert (other.rotations.spectrum.rotations_claimed < 1).sum() == sum(each > 131_072 for each in wavelengths)


def test_what_is_said_of_a_side_is_on_top_of_where_it_begins(llama: Session) -> None:
    result = api.lab(llama, {"a": "factor=32", "b": "from=plain scaling=ntk", "claimed": 9000})
    one, other = ({parameter.name: parameter.value for parameter in side.parameters} for side in result.sides)
    assert (result.sides[0].scaling, one["factor"], one["theta"]) == ("llama3", 32.0, 500_000.0)
    assert (result.sides[1].scaling, other["factor"], other["theta"]) == ("ntk", 4.0, 10_000.0)
    assert result.claimed == 9000
    # Their pairs differ in number.
    assert result.agreement is None


def test_lists_of_factors_are_the_models_own(tmp_path: Path) -> None:
    result = api.lab(of_layers(tmp_path, PHI), {"claimed": 2000})
    one = result.sides[0]
    plain = np.array(reference.inverse_frequencies(8, 10_000.0))
    np.testing.assert_allclose(one.rotations.spectrum.slowdown, [2, 3, 5, 9])
    assert (one.rotations.follows_length, one.rotations.trained) == (True, 1024)
    assert one.rotations.magnitude == pytest.approx(reference.longrope_magnitude(8.0, 1024))
    short = api.lab(of_layers(tmp_path, PHI), {"claimed": 1000}).sides[0]
    np.testing.assert_allclose(short.rotations.spectrum.wavelengths, 2 * pi / plain * [1, 1.1, 1.2, 1.3])


def test_a_length_rounded_up_as_in_qwen_is_the_models_own(tmp_path: Path) -> None:
    one = api.lab(of_layers(tmp_path, QWEN), {"claimed": 5000}).sides[0]
    assert {parameter.name: parameter.value for parameter in one.parameters}["doubling"] is True
    right = reference.dynamic_ntk_frequencies(8, 10_000.0, 2.0, 2048, 5000, True)
    np.testing.assert_allclose(one.rotations.spectrum.wavelengths, 2 * pi / np.array(right), rtol=1e-12)


def test_kinds_of_layers_are_laid_over_each_other(tmp_path: Path) -> None:
    result = api.lab(of_layers(tmp_path, GEMMA), {})
    thetas = [
        next(parameter.value for parameter in side.parameters if parameter.name == "theta") for side in result.sides
    ]
    assert sorted(thetas) == [10_000.0, 1_000_000.0]
    assert {preset.title for preset in result.presets} == {
        "this model, layers 0, 2", "this model, layers 1, 3", "a plain rotary",
    }  # fmt: skip


def test_models_without_a_rotary_say_so_and_the_lab_is_plain(real: Session, fresh: Session) -> None:
    assert api.lab(real, {}).missing == "no layer of this model rotates queries and keys"
    result = api.lab(fresh, {})
    assert result.missing == "nothing is loaded"
    assert [side.scaling for side in result.sides] == ["none", "yarn"]


def test_a_configuration_that_is_refused_leaves_a_plain_lab(tmp_path: Path) -> None:
    result = api.lab(of_layers(tmp_path, GEMMA | {"num_key_value_heads": 3}), {})
    assert "cannot share 3 key heads" in result.missing
    assert result.sides[0].preset.name == "plain"


def test_what_the_library_refuses_is_said_beside_the_sliders(fresh: Session) -> None:
    result = api.lab(fresh, {"a": "scaling=llama3 high_frequency_factor=0.5", "b": "head_dim=32 rotary_dim=64"})
    one, other = result.sides
    assert one.problem.startswith("Llama3 got low_frequency_factor=1.0 and high_frequency_factor=0.5")
    assert "head_dim=32" in other.problem
    assert {parameter.name for parameter in one.parameters} >= {"low_frequency_factor", "high_frequency_factor"}
    assert (result.agreement, one.rotations, other.rotations) == (None, None, None)


def test_the_page_shows_what_the_api_answers(look: Callable[..., dict[str, Any]], llama: Session) -> None:
    result = look(llama, "rotary.mjs")
    one, other = api.lab(llama, {}).sides
    for shown, side in (("a", one), ("b", other)):
        assert result[shown]["scaling"] == side.scaling
        known = {f"{parameter.name}, exactly": parameter.value for parameter in side.parameters}
        assert result[shown]["parameters"] == known
        assert (
            f"{side.rotations.spectrum.partial.sum()} of 64 pairs make no full rotation in the trained 8,192"
            in result[shown]["facts"]
        )
        assert (
            f"{(side.rotations.spectrum.rotations_claimed < 1).sum()} make no full rotation in 131,072"
            in result[shown]["facts"]
        )
    assert result["address"] == "#/rotary"
    rows = csv_rows(result["csv"])
    assert [float(row["wavelength"]) for row in rows] == [
        *one.rotations.spectrum.wavelengths.tolist(),
        *other.rotations.spectrum.wavelengths.tolist(),
    ]
    assert "trained 8,192" in result["svg"]
    said: dict[str, Any] = {}
    *lines, last = result["how"].splitlines()
    exec("\n".join(lines), said)  # the Python of the page gives the same numbers
    np.testing.assert_array_equal(eval(last, said).wavelengths, other.rotations.spectrum.wavelengths)
    turned_to = result["turned"]["parameters"]["factor, exactly"]
    assert 8 < turned_to < 16
    assert result["turned"]["address"] == f"#/rotary?a=factor%3D{turned_to:g}"
    after = api.lab(llama, {"a": f"factor={turned_to}"}).sides[0]
    assert (
        f"{(after.rotations.spectrum.rotations_claimed < 1).sum()} make no full rotation in 131,072"
        in result["turned"]["facts"]
    )
    assert (result["yarn"]["scaling"], result["yarn"]["parameters"]["factor, exactly"]) == ("yarn", turned_to)
    agree = api.lab(llama, {"a": f"factor={turned_to} scaling=yarn"}).agreement
    assert f"the cosine of A and B is {agree[-1]:.3f}" in result["note"].replace("−", "-")
    assert result["refused"].startswith("YaRN got beta_fast=32.0 and beta_slow=40.0")
    assert result["reset"] == "#/rotary"
    assert result["violations"] == []


def test_the_lab_of_a_comparison_begins_with_the_rotary_of_its_runs(session: Session) -> None:
    result = api.lab(session, {})
    (run,) = (run for run in session.runs if run.startswith("rotary") and run.endswith("-0"))
    rotary = scheme_of(session, run).where.query_key
    values = {parameter.name: parameter.value for parameter in result.sides[0].parameters}
    # Sequences of 3 arguments have 8 tokens, those of 6 have 14.
    assert values == {"head_dim": 8, "rotary_dim": 8, "theta": rotary.theta, "original_length": 8}
    assert (result.claimed, [preset.title for preset in result.presets]) == (
        14, ["the run rotary+alibi, seed 0", "a plain rotary"],
    )  # fmt: skip
    np.testing.assert_array_equal(result.sides[0].rotations.frequencies, rotary.inverse_frequencies)
