"""Files that are less than a model, broken ones, and how missing parts are told."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from whatwhere.errors import CheckpointError, SettingError, TokenError
from whatwhere.inspection import inspect
from whatwhere.inspection.telling.ill import unhealthy

ROWS = np.random.default_rng(0).standard_normal((300, 24)).astype(np.float32)


def vectors(file: Path, words: list[str], rows: np.ndarray = ROWS) -> Path:
    """Write vectors as word2vec does."""
    lines = (f"{word} {' '.join(f'{n:.5f}' for n in row)}" for word, row in zip(words, rows, strict=True))
    file.write_text("\n".join([f"{len(rows)} {rows.shape[1]}", *lines]) + "\n", encoding="utf-8")
    return file


def test_word_vectors(tmp_path: Path) -> None:
    words = [f"word{n}" for n in range(200)] + [f"слово{n}" for n in range(98)] + ["1,000", "..."]
    found = inspect(vectors(tmp_path / "words.vec", words))
    assert found.answer == "300 tokens x 24"
    groups = {group["name"]: group["rows"] for group in found["norms"]["by_script"]}
    assert groups == {"Latin": 200, "Cyrillic": 98, "no letters": 2}
    kinds = {group["name"]: group["rows"] for group in found["norms"]["by_kind"]}
    assert kinds == {"word": 298, "number": 1, "punctuation": 1}
    for name in ("shares", "positions", "rotary", "biases"):
        assert "configuration" in found[name]["missing"]
    assert "tokenizer.json" in found["unhealthy"]["unreachable"]["missing"]
    assert found["unhealthy"]["never_trained"]["shown"] == []


def test_a_table_alone(tmp_path: Path) -> None:
    np.save(tmp_path / "table.npy", ROWS)
    found = inspect(tmp_path / "table.npy")
    assert found["sizes"]["rows"] == 300
    assert "names its rows" in found["norms"]["by_kind"]["missing"]
    assert found["norms"]["percentiles"]["100"] == pytest.approx(
        np.linalg.norm(ROWS.astype(np.float64), axis=1).max(), rel=1e-5
    )


@pytest.mark.parametrize("name", ["sizes", "norms", "spectrum", "unhealthy"])
def test_each_section_alone(name: str, tmp_path: Path) -> None:
    np.save(tmp_path / "table.npy", ROWS)
    whole, alone = inspect(tmp_path / "table.npy"), inspect(tmp_path / "table.npy", [name])
    assert list(alone.data["sections"]) == [name]
    assert alone[name] == whole[name]


def test_rows_that_are_not_well_come_with_evidence(tmp_path: Path) -> None:
    rows = ROWS.copy()
    rows[7] = 0
    rows[9, 3], rows[9, 4], rows[11, 0] = np.nan, np.inf, np.nan
    rows[[20, 30]] = rows[5]
    np.save(tmp_path / "table.npy", rows)
    found = inspect(tmp_path / "table.npy")
    ill = found["unhealthy"]
    assert ill["zero"]["ids"] == [7]
    assert [(row["id"], row["nan"], row["infinite"]) for row in ill["broken"]["shown"]] == [(9, 1, 1), (11, 1, 0)]
    assert ill["duplicates"]["ids"] == [[5, 20, 30]]
    assert (found["norms"]["rows"], found["norms"]["finite"]) == (300, 298)
    sound = np.delete(rows, [7, 9, 11], axis=0).astype(np.float64)
    variances = np.linalg.eigvalsh(np.cov(sound.T, bias=True))
    assert found["spectrum"]["participation"] == pytest.approx(variances.sum() ** 2 / (variances**2).sum(), rel=1e-4)
    json.dumps(found.data, allow_nan=False)


STRANGE: dict[str, np.ndarray] = {
    "one row": ROWS[:1],
    "two rows": ROWS[:2],
    "one column": ROWS[:, :1],
    "zeros": np.zeros((40, 8), np.float32),
    "nothing finite": np.full((40, 8), np.nan, np.float32),
    "whole numbers": np.arange(400).reshape(100, 4),
    "half": ROWS.astype(np.float16),
    "equal": np.ones((40, 8)),
    "empty": np.zeros((0, 8), np.float32),
    "a cube": np.zeros((3, 4, 5), np.float32),
}


@pytest.mark.parametrize("name", STRANGE)
def test_strange_tables_are_told_of(name: str, tmp_path: Path) -> None:
    np.save(tmp_path / "table.npy", STRANGE[name])
    try:
        found = inspect(tmp_path / "table.npy")
    except CheckpointError:
        assert name in ("empty", "a cube")
        return
    json.dumps(found.data, allow_nan=False)
    for section in found.data["sections"].values():
        assert "missing" not in section or len(section["missing"]) > 10


def test_wrong_inputs(tmp_path: Path) -> None:
    np.save(tmp_path / "table.npy", ROWS)
    with pytest.raises(SettingError, match="there are: sizes"):
        inspect(tmp_path / "table.npy", ["norm"])
    with pytest.raises(SettingError, match="no section"):
        inspect(tmp_path / "table.npy", [])
    with pytest.raises(CheckpointError):
        inspect(tmp_path / "none.npy")
    (tmp_path / "model.pt").write_bytes(b"PK\x03\x04")
    with pytest.raises(CheckpointError, match="allow"):
        inspect(tmp_path / "model.pt")
    (tmp_path / "broken.safetensors").write_bytes(b"\xff" * 100)
    with pytest.raises((CheckpointError, TokenError)):
        inspect(tmp_path / "broken.safetensors")


def test_a_configuration_that_contradicts_itself(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    save_file({"model.embed_tokens.weight": ROWS}, tmp_path / "model.safetensors")
    config = {"model_type": "llama", "vocab_size": len(ROWS), "hidden_size": ROWS.shape[1], "num_hidden_layers": 1}
    config |= {"num_attention_heads": 4, "num_key_value_heads": 3}
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = inspect(tmp_path)
    why = "the configuration is not understood: 4 heads of queries cannot share 3 heads of keys evenly"
    assert found["rotary"]["missing"] == why
    assert found["norms"]["percentiles"]


def test_a_configuration_that_nobody_knows(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    save_file({"wte.weight": ROWS, "wpe.weight": ROWS[:50]}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "never-heard-of", "vocab_size": 300}))
    found = inspect(tmp_path)
    assert "not understood" in found["rotary"]["missing"]
    assert found["positions"]["positions"] == 50
    assert found["positions"]["offset"] is None
    assert found["shares"]["scale_known"] is False
    assert found["shares"]["norm"] is None


def test_samples_are_seeded(tmp_path: Path) -> None:
    rows = np.random.default_rng(1).standard_normal((20_000, 8)).astype(np.float32)
    np.save(tmp_path / "table.npy", rows)
    one, again, other = (inspect(tmp_path / "table.npy", ["spectrum"], seed=seed)["spectrum"] for seed in (0, 0, 1))
    assert one == again != other
    assert (one["sampled"], one["rows"]) == (True, 16_384)


LIGHT = """
import sys
from whatwhere.inspection import inspect
from whatwhere.inspection.telling.ill import unhealthy
inspect(sys.argv[1])
print(*{"torch", "matplotlib", "transformers"} & set(sys.modules))
"""


def test_a_file_without_a_configuration_needs_no_torch(tmp_path: Path) -> None:
    np.save(tmp_path / "table.npy", ROWS)
    command: list[Any] = [sys.executable, "-c", LIGHT, tmp_path / "table.npy"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr


def test_a_table_with_nothing_wrong_is_not_told_of_in_zeros(tmp_path: Path) -> None:
    np.save(tmp_path / "table.npy", ROWS)
    said = " ".join(part for part in unhealthy(inspect(tmp_path / "table.npy")["unhealthy"]) if isinstance(part, str))
    assert "Of 300 rows none looks as if training had never reached it." in said
    assert not re.search(r"\b0 (of|hubs|rows)", said)
