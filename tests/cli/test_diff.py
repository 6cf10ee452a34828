"""diff: what was changed in a copy is what it reports."""

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from whatwhere.analysis.table_difference import movement

from ..models.checkpoint import samples
from ..models.checkpoint.forms import FORMS, TYPES
from ..models.tiny import config_of
from ..running import json_of, whatwhere
from .conftest import Saved

Zoo = dict[tuple[str, str], Saved]


def vectors(path: Path, rows: dict[str, Any]) -> Path:
    lines = (f"{word} {' '.join(map(repr, np.asarray(row, float).tolist()))}\n" for word, row in rows.items())
    path.write_text(f"{len(rows)} {len(next(iter(rows.values())))}\n" + "".join(lines), encoding="utf-8")
    return path


@pytest.fixture
def rows() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {f"w{n}": rng.standard_normal(6).astype(np.float32) for n in range(60)}


@pytest.mark.parametrize("form", FORMS[1:])
@pytest.mark.parametrize("kind", TYPES)
def test_one_model_in_two_forms(kind: str, form: str, zoo: Zoo) -> None:
    """Nothing moved; of rows and layers only what GGUF stores in another order differs."""
    result = json_of("diff", zoo[kind, "single"].path, zoo[kind, form].path)
    tokens = result["tokens"]
    assert (tokens["matched_by"], tokens["shared"], tokens["removed"], tokens["new"]) == ("text", 35, [], [])
    assert (tokens["rows"]["equal"], tokens["rows"]["relative_error"], tokens["rows"]["moved_most"]) == (35, 0, [])
    assert tokens["neighbors"]["kept"] == 1
    assert ("missing" in result["positions"]) is (kind != "gpt2")
    if kind == "gpt2":
        assert (result["positions"]["shared"], result["positions"]["rows"]["equal"]) == (64, 64)
    layers = result["configuration"]["query_key"]
    if kind == "llama" and form == "gguf":
        (group,) = layers
        assert group["layers"] == [0, 1, 2, 3]
        assert group["rotary"]["interleaved"] == [False, True]
        assert (group["rotary"]["differing"], set(group["rotary"]["cosine"])) == (0, {1.0})
    else:
        assert layers == result["configuration"]["score"] == []


def test_a_row_of_zeros_in_one_table_has_no_cosine(rows: dict[str, np.ndarray], tmp_path: Path) -> None:
    first = vectors(tmp_path / "a.vec", rows)
    second = vectors(tmp_path / "b.vec", rows | {"w7": 0 * rows["w7"], "w8": 2 * rows["w8"]})
    found = json_of("diff", first, second)["tokens"]["rows"]
    assert (found["without_cosine"], found["equal"]) == (1, 58)
    assert found["cosine"]["min"] == pytest.approx(1)
    assert "least 1, without 1 row of zeros in A or in B alone;" in " ".join(
        whatwhere("diff", first, second).out.split()
    )


def test_other_tensors_are_compared_by_kind(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    shapes = {"model.embed_tokens.weight": (9, 4), "model.layers.0.self_attn.q_proj.weight": (4, 4)}
    shapes |= {"model.layers.0.mlp.up_proj.weight": (8, 4), "model.layers.0.input_layernorm.weight": (4,)}
    one = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()} | {
        "step": np.array(3)
    }
    other = {name: x.copy() for name, x in one.items()} | {"model.layers.0.mlp.gate_proj.weight": np.eye(4)}
    other["model.layers.0.self_attn.q_proj.weight"][2] *= 1.5
    other["model.layers.0.input_layernorm.weight"] = np.ones(5, np.float32)
    for name, tensors in (("a", one), ("b", other)):
        save_file(tensors, tmp_path / f"{name}.safetensors")
    found = {group["name"]: group for group in json_of("diff", *sorted(tmp_path.iterdir()))["others"]}
    q = one["model.layers.0.self_attn.q_proj.weight"].astype(np.float64)
    error = found["attention"].pop("relative_error")
    assert error == pytest.approx(0.5 * np.linalg.norm(q[2]) / np.linalg.norm(q), rel=1e-5)
    counts = ("shared", "equal", "not_read", "other_shape", "removed", "new")
    assert {name: tuple(group[key] for key in counts) for name, group in found.items()} == {
        "norms": (0, 0, 0, 1, 0, 0),
        "attention": (1, 0, 0, 0, 0, 0),
        "MLP": (1, 1, 0, 0, 0, 1),
        "others": (1, 1, 0, 0, 0, 0),
    }
    said = " ".join(whatwhere("diff", *sorted(tmp_path.iterdir())).out.split())
    assert "Attention: 0 of 1 tensor equal; 1 changed, relative error" in said
    assert "MLP: 1 of 1 tensor equal; 1 in B alone." in said


def test_rows_that_moved_came_and_went(rows: dict[str, np.ndarray], tmp_path: Path) -> None:
    other = {word: row.copy() for word, row in reversed(rows.items()) if word != "w7"} | {"w99": np.ones(6)}
    other["w3"] *= -4
    other["w5"] += 0.5
    result = json_of("diff", vectors(tmp_path / "a.vec", rows), vectors(tmp_path / "b.vec", other))["tokens"]
    assert (result["shared"], result["removed"], result["new"]) == (59, ["w7"], ["w99"])
    assert result["rows"]["equal"] == 57
    first, second = result["rows"]["moved_most"]
    assert (first["token"], first["ids"], first["cosine"], first["norm_ratio"]) == ("w3", [3, 55], -1, 4)
    assert second["token"] == "w5"
    typical = np.median([np.linalg.norm(row.astype(float)) for word, row in rows.items() if word != "w7"])
    assert second["distance"] == pytest.approx(np.sqrt(6) / 2 / typical, rel=1e-4)
    shown = whatwhere("diff", tmp_path / "a.vec", tmp_path / "b.vec").out
    assert "1 token in A alone: 'w7'." in shown
    assert "1 token in B alone: 'w99'." in shown
    assert "Neither has a configuration." in shown
    moved = shown[shown.index("Tokens that moved most") :].splitlines()[2:4]
    assert [line.split()[:3] for line in moved] == [["w3", "3", "55"], ["w5", "5", "53"]]


def test_small_distances_are_no_zeros(rows: dict[str, np.ndarray], tmp_path: Path) -> None:
    other = {word: row + 1e-5 for word, row in rows.items()}
    shown = whatwhere("diff", vectors(tmp_path / "a.vec", rows), vectors(tmp_path / "b.vec", other)).out
    assert "e\u22125" in shown
    assert "0.0000" not in shown


def test_another_space_is_rotated_onto_the_first(rows: dict[str, np.ndarray], tmp_path: Path) -> None:
    rotation = np.linalg.qr(np.random.default_rng(1).standard_normal((6, 6)))[0]
    other = {word: row @ rotation for word, row in rows.items()}
    other["w9"] = -other["w9"]
    result = json_of("diff", vectors(tmp_path / "a.vec", rows), vectors(tmp_path / "b.vec", other))["tokens"]
    assert result["rows"]["cosine"]["median"] < 0.9
    assert result["rotated"]["held_out_cosine"] > 0.98
    assert result["rotated"]["moved_most"][0]["token"] == "w9"
    shown = whatwhere("diff", tmp_path / "a.vec", tmp_path / "b.vec").out
    assert "Tokens that moved most once A is rotated onto B" in shown
    other = dict(zip(rows, np.random.default_rng(2).permutation([*rows.values()]), strict=True))
    shown = whatwhere("diff", tmp_path / "a.vec", vectors(tmp_path / "b.vec", other), "-k", 1).out
    assert "are the same for 'w0', 'w1', 'w2'" in shown
    assert "Tokens whose nearest neighbors" not in shown


def test_tables_of_other_widths(rows: dict[str, np.ndarray], tmp_path: Path) -> None:
    """Rows have no distance then, but neighborhoods do."""
    wide = {word: np.concatenate([row, row]) for word, row in rows.items()}
    result = json_of("diff", vectors(tmp_path / "a.vec", rows), vectors(tmp_path / "b.vec", wide))["tokens"]
    assert result["rows"] == {"missing": "rows have 6 and 12 features, so they have no distance"}
    assert result["neighbors"]["kept"] == 1
    assert "rows have 6 and 12 features" in whatwhere("diff", tmp_path / "a.vec", tmp_path / "b.vec").out


def test_without_words_rows_are_matched_by_id(rows: dict[str, np.ndarray], tmp_path: Path) -> None:
    table = np.stack(list(rows.values()))
    np.save(tmp_path / "a.npy", table[:40])
    result = json_of("diff", tmp_path / "a.npy", vectors(tmp_path / "b.vec", rows))["tokens"]
    assert (result["matched_by"], result["shared"], result["new"]) == ("id", 40, [f"w{n}" for n in range(40, 60)])
    assert result["rows"]["equal"] == 40


def test_what_quantisation_did(tmp_path: Path) -> None:
    """The numbers of a table that the authors' own package quantised and widened."""
    table = np.random.default_rng(0).standard_normal((200, 64)).astype(np.float32)
    words = [f"w{n}" for n in range(200)]
    (tmp_path / "a").mkdir()
    content = samples.safetensors({"wte.weight": ("F32", (200, 64), table.tobytes())})
    (tmp_path / "a" / "model.safetensors").write_bytes(content)
    (tmp_path / "a" / "vocab.json").write_text(json.dumps({word: n for n, word in enumerate(words)}))
    kind = gguf.GGMLQuantizationType.Q4_0
    quantised = gguf.quants.quantize(table, kind)
    keys = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": words}
    samples.write_gguf(tmp_path / "b.gguf", "gpt2", keys, {"token_embd.weight": (quantised, kind)})
    wide = gguf.quants.dequantize(quantised, kind).astype(np.float64)
    result = json_of("diff", tmp_path / "a", tmp_path / "b.gguf")["tokens"]["rows"]
    right = movement(table, wide)
    assert result["cosine"]["mean"] == pytest.approx(right.cosine.mean(), rel=1e-5)
    assert result["relative_error"] == pytest.approx(right.relative_error, rel=1e-5)
    said = whatwhere("diff", tmp_path / "a", tmp_path / "b.gguf").out
    assert "A stores float32 and B Q4_0: rounding is a part of the differences that follow." in said


def test_positions_are_matched_where_rows_precede_them(tmp_path: Path) -> None:
    """OPT keeps two rows before that of position 0; GPT-2 none."""
    positions = np.random.default_rng(0).standard_normal((12, 8)).astype(np.float32)
    moved = positions[2:].copy()
    moved[4] += 1
    table = ("F32", (5, 8), bytes(range(1, 161)))
    for name, prefix, tokens, wheres, rows in (
        ("opt", "model.decoder.", "embed_tokens.weight", "embed_positions.weight", positions),
        ("gpt2", "", "wte.weight", "wpe.weight", moved),
    ):
        (tmp_path / name).mkdir()
        tensors = {prefix + tokens: table, prefix + wheres: ("F32", rows.shape, rows.tobytes())}
        content = samples.safetensors(tensors)
        (tmp_path / name / "model.safetensors").write_bytes(content)
        (tmp_path / name / "config.json").write_text(config_of(name).to_json_string())
    result = json_of("diff", tmp_path / "opt", tmp_path / "gpt2")["positions"]
    assert (result["offsets"], result["shared"], result["rows"]["equal"]) == ([2, 0], 10, 9)
    (row,) = result["rows"]["moved_most"]
    assert (row["token"], row["ids"]) == ("position 4", [6, 4])


LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500_000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip


def test_rotary_by_position(tmp_path: Path) -> None:
    """Of two configurations alone; the oracle of frequencies is transformers, of cosines a vector rotated by them."""
    plain = {"rope_type": "default", "rope_theta": 500_000.0}
    configs = [
        config_of("llama", head_dim=128, max_position_embeddings=131_072, rope_parameters=p) for p in (plain, LLAMA3)
    ]
    for name, config in zip("ab", configs, strict=True):
        (tmp_path / f"{name}.json").write_text(config.to_json_string())
    result = json_of("diff", tmp_path / "a.json", tmp_path / "b.json")
    assert "a configuration alone" in result["tokens"]["missing"]
    (group,) = result["configuration"]["query_key"]
    rotary = group["rotary"]
    scaled = ROPE_INIT_FUNCTIONS["llama3"](configs[1], "cpu")[0].double()
    unscaled = 500_000.0 ** (-torch.arange(0, 128, 2, dtype=torch.float64) / 128)
    assert rotary["frequencies"][0] == pytest.approx(unscaled.tolist(), rel=1e-5)
    assert rotary["frequencies"][1] == pytest.approx(scaled.tolist(), rel=1e-5)
    assert rotary["differing"] == int((abs(scaled / unscaled - 1) > 1e-5).sum())
    x = torch.complex(*torch.ones(2, 64, dtype=torch.float64))
    for distance, cosine in zip(rotary["distances"], rotary["cosine"], strict=True):
        one, other = (x * torch.exp(1j * distance * w) for w in (unscaled, scaled))
        rotated = (one * other.conj()).real.sum() / (one.abs() ** 2).sum()
        assert cosine == pytest.approx(rotated.item(), abs=0.02 if distance > 16_000 else 0.003)
    assert rotary["distances"][-1] == 131_072
    shown = whatwhere("diff", tmp_path / "a.json", tmp_path / "b.json").out
    assert f"{rotary['differing']} of 64 pairs have other frequencies at length 131,072" in shown


def test_a_configuration_that_is_not_understood_is_compared_by_its_keys(tmp_path: Path) -> None:
    zeros = samples.safetensors({"wte.weight": ("F32", (3, 2), bytes(24))})
    for name, theta in (("a", 1), ("b", 2)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_bytes(zeros)
        config = {"model_type": "no such model", "rope": {"theta": theta}, "transformers_version": name}
        (tmp_path / name / "config.json").write_text(json.dumps(config))
    result = json_of("diff", tmp_path / "a", tmp_path / "b")["configuration"]
    assert result["keys"] == [{"name": "rope.theta", "first": 1, "second": 2}]
    assert "no such model" in result["not_understood"]


@pytest.mark.parametrize("model_type", ["mistral", "gemma3_text", "gpt_oss"])
def test_windows_of_two_configurations_differ(model_type: str, tmp_path: Path) -> None:
    """Without weights the keys are not compared, so the window is named as it is described."""
    for size in (3, 5):
        config = config_of(model_type, sliding_window=size).to_dict()
        (tmp_path / f"{size}").mkdir()
        (tmp_path / f"{size}" / "config.json").write_text(json.dumps(config, default=str))
    result = json_of("diff", tmp_path / "3" / "config.json", tmp_path / "5" / "config.json")
    (fact,) = result["configuration"]["facts"]
    assert fact["name"] == "windows"
    assert fact["first"].startswith("3 tokens: ")
    assert fact["second"].startswith("5 tokens: ")


def test_a_layout_alone_is_no_other_encoding(tmp_path: Path) -> None:
    """Cohere pairs neighboring features, Llama halves; with another theta the encodings differ too."""
    sizes = {"vocab_size": 40, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "rope_theta": 1e4}
    for name, config in {"a": {"model_type": "llama"}, "b": {"model_type": "cohere"}, "c": {"rope_theta": 5e5}}.items():
        (tmp_path / f"{name}.json").write_text(json.dumps({"model_type": "cohere"} | sizes | config))
    for other, what in (("b", "the pair layouts of 2 layers differ"), ("c", "positional encodings of 2 layers differ")):
        assert what in whatwhere("diff", tmp_path / "a.json", tmp_path / f"{other}.json").out
