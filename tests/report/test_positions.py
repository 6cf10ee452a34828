"""What a report says of rotations and biases: the numbers of a model whose frequencies are known by hand."""

import json
from math import floor
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from whatwhere.analysis.inspection import inspect
from whatwhere.report.positions import biases, rotary
from whatwhere.report.section import Table

LLAMA = {
    "model_type": "llama", "vocab_size": 30, "hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 2,
    "intermediate_size": 64, "max_position_embeddings": 256, "rope_theta": 10_000.0,
}  # fmt: skip
BLOOM = {"model_type": "bloom", "vocab_size": 30, "hidden_size": 32, "n_head": 4, "n_layer": 2}


def folder(path: Path, config: dict, table: str) -> Path:
    (path / "config.json").write_text(json.dumps(config))
    save_file(
        {table: np.random.default_rng(0).standard_normal((30, 32)).astype(np.float32)}, path / "model.safetensors"
    )
    return path


def words(parts) -> str:
    return "\n".join(part for part in parts if isinstance(part, str))


def tables(parts) -> list[Table]:
    return [part for part in parts if isinstance(part, Table)]


def test_rotation_with_a_scaling(tmp_path):
    scaled = LLAMA | {"max_position_embeddings": 1024, "rope_scaling": {"rope_type": "yarn", "factor": 4.0}}
    scaled["rope_scaling"]["original_max_position_embeddings"] = 256
    findings = inspect(folder(tmp_path, scaled, "model.embed_tokens.weight"), ["rotary"]).rotary
    parts = [*rotary(findings)]
    assert "theta 10,000" in words(parts)
    slow = sum(2 * np.pi * 10_000 ** (2 * n / 16) > 1024 for n in range(8))
    assert f"In 1,024 positions {slow} would not without the scaling" in words(parts)
    assert f"Queries and keys are multiplied by {1 + 0.1 * np.log(4):.4g}." in words(parts)
    assert "Cosine of a vector rotated with and without the scaling, by distance: 1.000 at 1" in words(parts)
    (table,) = tables(parts)
    assert table.columns[1:4] == ("wavelength", "wavelength unscaled", "slowdown")
    assert [table.rows[n][3] for n in (0, 7)] == ["1", "4"]


def test_biases_are_described_by_head(tmp_path):
    findings = inspect(folder(tmp_path, BLOOM, "word_embeddings.weight"), ["biases"]).biases
    parts = [*biases(findings)]
    (table,) = tables(parts)
    slopes = [2**-2, 2**-4, 2**-6, 2**-8]
    assert [row[-1] for row in table.rows] == ["0.25", "0.0625", "0.01563", "0.003906"]
    # The weight exp(-m d) is below 1 % of the greatest from ln(100) / m on.
    assert [row[1] for row in table.rows] == [f"{floor(np.log(100) / slope) + 1:,}" for slope in slopes]
    assert words(parts).startswith("4 of 4 heads have an effective range, of 19 to 1,179 tokens.")
