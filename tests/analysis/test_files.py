"""Files that are less than a model, broken ones, and how missing parts are reported."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from whatwhere.analysis.inspection import SECTIONS, Inspection, inspect
from whatwhere.errors import CheckpointError
from whatwhere.models.checkpoint import Checkpoint
from whatwhere.records import Missing, to_json
from whatwhere.report.inspection import headline, sections

ROWS = np.random.default_rng(0).standard_normal((300, 24)).astype(np.float32)


def vectors(file: Path, words: list[str], rows: np.ndarray = ROWS) -> Path:
    lines = (f"{word} {' '.join(f'{n:.5f}' for n in row)}" for word, row in zip(words, rows, strict=True))
    file.write_text("\n".join([f"{len(rows)} {rows.shape[1]}", *lines]) + "\n", encoding="utf-8")
    return file


def test_word_vectors(tmp_path: Path) -> None:
    words = [f"word{n}" for n in range(200)] + [f"слово{n}" for n in range(98)] + ["1,000", "..."]
    result = inspect(vectors(tmp_path / "words.vec", words))
    assert headline(result) == "300 tokens × 24"
    assert {group.name: group.rows for group in result.norms.by_script} == {
        "Latin": 200, "Cyrillic": 98, "no letters": 2
    }  # fmt: skip
    assert {group.name: group.rows for group in result.norms.by_type} == {"word": 298, "number": 1, "punctuation": 1}
    for name in ("variance", "positions", "rotary", "biases"):
        assert "configuration" in getattr(result, name).missing
    assert "tokenizer.json" in result.diagnostics.unreachable.missing
    assert result.diagnostics.under_trained.examples == []


def spoiled() -> np.ndarray:
    rng = np.random.default_rng(0)
    table = rng.standard_normal((2000, 256)).astype(np.float32)
    table[40:60] = 0.1 + 0.01 * rng.standard_normal((20, 256))
    table[7] = 0
    table[9] = table[11] = table[8]
    table[12, 3] = np.nan
    table[13, :2] = np.inf
    table[14], table[15] = table[14] / 50, table[15] * 50
    return table


def test_suspicious_rows_are_listed_with_evidence(tmp_path: Path) -> None:
    table = spoiled()
    np.save(tmp_path / "table.npy", table)
    result = inspect(tmp_path / "table.npy")
    found = result.diagnostics
    assert sorted(found.under_trained.ids.tolist()) == list(range(40, 60))
    assert found.under_trained.also_unreachable is None
    assert [(row.id, row.why) for row in found.far.examples] == [(14, "low norm"), (15, "high norm")]
    assert found.far.lowest[0].id == 14
    assert [(row.id, row.why) for row in found.far.farthest[:1]] == [(15, "high norm")]
    assert found.far.farthest[1].why is None
    mean = np.delete(table, [7, 12, 13, 14, 15, *range(40, 60)], axis=0).mean(axis=0, dtype=np.float64)
    assert [row.distance for row in found.far.examples] == pytest.approx(np.linalg.norm(table[14:16] - mean, axis=1))
    assert found.zero.ids.tolist() == [7]
    assert (found.duplicates.groups, found.duplicates.ids) == (1, ((8, 9, 11),))
    assert [row.id for row in found.duplicates.examples[0]] == [8, 9, 11]
    assert [(row.id, row.nan, row.infinite) for row in found.not_finite.examples] == [(12, 1, 0), (13, 0, 2)]
    assert "tokenizer" in found.unreachable.missing
    assert (result.norms.rows, result.norms.finite) == (2000, 1998)
    sound = np.delete(table, [7, 12, 13], axis=0).astype(np.float64)
    variances = np.linalg.eigvalsh(np.cov(sound.T, bias=True))
    assert result.spectrum.participation_ratio == pytest.approx(variances.sum() ** 2 / (variances**2).sum(), rel=1e-4)
    json.dumps(to_json(result), allow_nan=False)


STRANGE: dict[str, np.ndarray] = {
    "one row": ROWS[:1], "two rows": ROWS[:2], "one column": ROWS[:, :1], "zeros": np.zeros((40, 8), np.float32),
    "nothing finite": np.full((40, 8), np.nan, np.float32), "whole numbers": np.arange(400).reshape(100, 4),
    "half": ROWS.astype(np.float16), "equal": np.ones((40, 8)), "empty": np.zeros((0, 8), np.float32),
    "a cube": np.zeros((3, 4, 5), np.float32),
}  # fmt: skip


@pytest.mark.parametrize("name", STRANGE)
def test_unusual_tables_are_reported(name: str, tmp_path: Path) -> None:
    np.save(tmp_path / "table.npy", STRANGE[name])
    try:
        result = inspect(tmp_path / "table.npy")
    except CheckpointError:
        assert name in ("empty", "a cube")
        return
    json.dumps(to_json(result), allow_nan=False)
    for section in SECTIONS:
        part = getattr(result, section)
        assert not isinstance(part, Missing) or len(part.missing) > 10
    assert [section.name for section in sections(result)] == list(SECTIONS)


CONFIG = {
    "model_type": "llama", "vocab_size": len(ROWS), "hidden_size": ROWS.shape[1], "num_hidden_layers": 1,
    "num_attention_heads": 4,
}  # fmt: skip


def llama(folder: Path, **changed: Any) -> Path:
    save_file({"model.embed_tokens.weight": ROWS}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(CONFIG | changed))
    return folder


@pytest.mark.parametrize(
    ("changed", "words", "said"),
    [
        ({"num_key_value_heads": 3}, "is not understood: 4 query heads cannot share 3 key heads evenly", "evenly."),
        ({"rope_thetta": 1e4}, "Did you mean 'rope_theta'? If", "Did you mean 'rope_theta'? If"),
        ({"rope_scaling": {"rope_type": "yarnn", "factor": 2.0}}, "(did you mean 'yarn'?)", "(did you mean 'yarn'?)."),
    ],
)
def test_a_configuration_that_is_not_understood_is_one_sentence(
    changed: dict[str, Any], words: str, said: str, tmp_path: Path
) -> None:
    result = inspect(llama(tmp_path, **changed))
    assert words in result.rotary.missing
    assert "\n" not in result.rotary.missing
    assert said in text(result, "rotary")
    assert "?." not in text(result, "rotary")
    assert result.norms.percentiles


def test_an_unknown_configuration(tmp_path: Path) -> None:
    save_file({"wte.weight": ROWS, "wpe.weight": ROWS[:50]}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "never-heard-of", "vocab_size": 300}))
    result = inspect(tmp_path)
    assert "not understood" in result.rotary.missing
    assert result.positions.positions == 50
    assert result.positions.offset is None
    assert result.variance.scale_known is False
    assert result.variance.norm is None


def test_samples_are_seeded(tmp_path: Path) -> None:
    rows = np.random.default_rng(1).standard_normal((20_000, 8)).astype(np.float32)
    np.save(tmp_path / "table.npy", rows)
    one, again, other = (inspect(tmp_path / "table.npy", ["spectrum"], seed=seed).spectrum for seed in (0, 0, 1))
    assert to_json(one) == to_json(again) != to_json(other)
    assert (one.sampled, one.rows) == (True, 16_384)


def text(result: Inspection, name: str) -> str:
    (section,) = (section for section in sections(result) if section.name == name)
    return " ".join(part for part in section.parts if isinstance(part, str))


def test_a_table_with_nothing_wrong_is_not_described_in_zeros(tmp_path: Path) -> None:
    np.save(tmp_path / "table.npy", ROWS)
    said = text(inspect(tmp_path / "table.npy"), "diagnostics")
    assert "Under-trained tokens cannot be detected here" in said
    assert "none exceeds 1" in said
    assert not re.search(r"\b0 (of|hubs|rows|tokens)", said)
    # Nothing names the rows, so nothing is said of rows beyond the vocabulary.
    assert "No row is duplicate, zero or not finite." in said
    assert "Rows beyond the vocabulary: the number of tokens is not known" in said


def test_a_random_table_is_not_called_trained(tmp_path: Path) -> None:
    """Rows that nothing but weight decay has moved share no direction, but a norm."""
    rows = np.random.default_rng(0).standard_normal((2000, 256)).astype(np.float32)
    rows[:100] *= 0.1
    np.save(tmp_path / "table.npy", rows)
    result = inspect(tmp_path / "table.npy")
    said, under_trained = text(result, "diagnostics"), result.diagnostics.under_trained
    assert under_trained.decisive
    assert f"is above {under_trained.highest:.2f}, and suspicious is above {under_trained.threshold:.2f}" in said
    assert "Rows that keep their random initialization share no direction" in said
    assert headline(result).endswith("100 rows far from the others")
    assert result.diagnostics.far.median_norm == pytest.approx(np.median(np.linalg.norm(rows, axis=1)))
    assert result.diagnostics.far.lowest[0].norm == pytest.approx(np.linalg.norm(rows, axis=1).min())
    assert 0 < under_trained.highest < under_trained.threshold < 1


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (np.arange(1, 9, dtype=np.float32)[None], "Rows far from the others cannot be detected in 1 row"),
        (np.eye(3, dtype=np.float32), "cannot be detected in 3 rows"),
        (np.zeros((3, 4), np.float32), "Hubs cannot be detected: fewer than two rows"),
    ],
)
def test_too_few_rows_are_not_judged(rows: np.ndarray, words: str, tmp_path: Path) -> None:
    np.save(tmp_path / "table.npy", rows)
    result = inspect(tmp_path / "table.npy")
    assert result.diagnostics.under_trained.highest is None
    assert words in text(result, "diagnostics")
    if len(rows) == 1:
        assert headline(result) == "1 token × 8"
        assert result.sizes.initial_scale is None
        assert "standard deviation" not in text(result, "sizes")


def test_a_missing_table_is_not_no_position_embedding(tmp_path: Path) -> None:
    """GPT-2 adds a table that this file lacks: so its first layer's input is not the token embedding alone."""
    save_file({"wte.weight": ROWS}, tmp_path / "model.safetensors")
    config = {"model_type": "gpt2", "vocab_size": 300, "n_embd": 24, "n_head": 2, "n_layer": 1, "n_positions": 50}
    (tmp_path / "config.json").write_text(json.dumps(config))
    result = inspect(tmp_path, ["variance", "positions"])
    for section in (result.variance, result.positions):
        assert "no table of it is in the file" in section.missing
        assert "alone" not in section.missing
        assert "alike" not in section.missing


def test_a_model_without_positional_encoding_is_reported_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = inspect(llama(tmp_path), ["variance"])
    assert result.variance.missing == (
        "this model adds no position embedding to its token embeddings: positions enter its attention, by Rotary; "
        "so the first layer's input is the token embedding alone"
    )
    without = replace(Checkpoint.open(tmp_path).description, query_key=(None,), score=(None,))
    monkeypatch.setattr(Checkpoint, "description", without)
    result = inspect(tmp_path, ["positions"])
    assert result.positions.missing == "this model has no positional encoding: every position is treated alike"
