"""Golden vectors equal the modules of transformers, and name what a port does wrong."""

import json
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from safetensors.torch import save_file as save_tensors

import whatwhere as ww
from tests.running import error_of, json_of, whatwhere
from whatwhere.errors import CheckpointError, SettingError
from whatwhere.models.golden import read_golden, verify, write_golden

from .tiny import config_of, model_of

LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama 3.1": ("llama", {"rope_parameters": LLAMA3}),
    "mistral": ("mistral", {}),
    "qwen2": ("qwen2", {}),
    "gemma3": ("gemma3_text", {}),
    "gpt_oss": ("gpt_oss", {}),
    "phi": ("phi", {}),
    "cohere": ("cohere", {}),
    "glm": ("glm", {}),
    "gpt_neox": ("gpt_neox", {}),
    "modernbert": ("modernbert", {}),
    "deepseek_v3": ("deepseek_v3", {}),
}


def per_pair(table: torch.Tensor, pairs: int) -> np.ndarray:
    """Return cosines or sines of each pair from a table that may have each twice."""
    values = table[0].double().numpy()
    if values.shape[-1] == pairs:
        return values
    return values[:, :pairs] if np.array_equal(values[:, :pairs], values[:, pairs:]) else values[:, ::2]


def of_transformers(model: Any, golden: Any, right: Any) -> dict[str, np.ndarray]:
    """Return the numbers that the modules of transformers compute, under the names of golden vectors."""
    rotary = next(module for name, module in model.named_modules() if name.endswith("rotary_emb"))
    numbers: dict[str, np.ndarray] = {}
    for n, kind in enumerate(golden.kinds):
        pairs = right[f"kind.{n}.inverse_frequencies"].shape[0]
        at = torch.tensor(golden.positions)[None]
        types = getattr(model.config, "layer_types", None)
        by_type = [types[kind.layers[0]]] if types and "layer_type" in signature(rotary.forward).parameters else []
        cos, sin = rotary(torch.zeros(1), at, *by_type)
        numbers |= {f"kind.{n}.cos": per_pair(cos, pairs).astype(np.float32)}
        numbers |= {f"kind.{n}.sin": per_pair(sin, pairs).astype(np.float32)}
        attention = [m for m in model.modules() if type(m).__name__.endswith("Attention") and hasattr(m, "scaling")]
        if attention:  # ModernBERT leaves the scale to its attention function
            numbers[f"kind.{n}.scale"] = np.array(attention[kind.layers[0]].scaling)
    return numbers


@pytest.mark.parametrize("family", FAMILIES)
def test_they_equal_the_modules_of_transformers(family: str, tmp_path: Path) -> None:
    name, settings = FAMILIES[family]
    config = config_of(name, **settings)
    golden = write_golden(ww.from_huggingface(config), tmp_path / "golden")
    numbers = of_transformers(model_of(config), golden, read_golden(tmp_path / "golden")[1])
    save_file(numbers, tmp_path / "port.safetensors")
    reports = verify(tmp_path / "golden", tmp_path / "port.safetensors", float32_angles=True)
    assert len(reports) == len(golden.kinds)
    for report in reports.values():
        report.require()
        assert {finding.law for finding in report.findings} >= {"cos", "sin"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_golden(ww.from_huggingface(config_of("llama", rope_parameters=LLAMA3)), tmp_path / "golden")
    return tmp_path / "golden"


def port(folder: Path, **changed: Any) -> Path:
    """Return a file with the right numbers but for some, of the first kind of layer."""
    numbers = load_file(folder / "golden.safetensors")
    numbers |= {f"kind.0.{name}": np.array(value, order="C") for name, value in changed.items()}
    save_file({name: value for name, value in numbers.items() if name.startswith("kind.0.")}, folder / "../port")
    return folder / "../port"


def test_the_right_numbers_pass(folder: Path) -> None:
    (report,) = verify(folder, port(folder)).values()
    report.require()
    assert len(report.findings) >= 10


def test_known_mistakes_are_named(folder: Path) -> None:
    right = {name.removeprefix("kind.0."): x for name, x in load_file(folder / "golden.safetensors").items()}
    q, pairs, cos, sin = (right[name] for name in ("query", "pairs", "cos", "sin"))

    def rotated(pairs: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
        out = q.copy()
        a, b = q[:, pairs[:, 0]], q[:, pairs[:, 1]]
        out[:, pairs[:, 0]], out[:, pairs[:, 1]] = a * cos - b * sin, a * sin + b * cos
        return out

    half = pairs.shape[0]
    interleaved = np.stack([2 * np.arange(half), 2 * np.arange(half) + 1], axis=1)
    far = np.array([0, 1, 4097, 131_071], np.float32)[:, None] * right["inverse_frequencies"].astype(np.float32)
    for wrong, words, first in (
        (rotated(interleaved, cos, sin), "in the interleaved layout", 1),
        (rotated(pairs, cos, -sin), "opposite sign", 1),
        (q, "nothing is rotated", 1),
        (rotated(pairs, np.cos(far), np.sin(far)), "angles of large positions are rounded", 4097),
    ):
        (report,) = verify(folder, port(folder, rotated_query=wrong)).values()
        (finding,) = report.failed
        assert (finding.law, finding.first) == ("rotated query", first)
        assert words in finding.note


def test_half_precision_is_judged_by_its_rounding(folder: Path) -> None:
    right = {name: torch.from_numpy(x) for name, x in load_file(folder / "golden.safetensors").items()}
    some = {name: x.bfloat16() for name, x in right.items() if name.endswith(("rotated_query", "cos"))}
    save_tensors(some, folder / "../half")
    (report,) = verify(folder, folder / "../half").values()
    report.require()
    save_tensors({name: (x * 1.05) for name, x in some.items()}, folder / "../half")
    (report,) = verify(folder, folder / "../half").values()
    assert len(report.failed) == 2


def test_a_window_a_temperature_and_a_bias_are_numbers(tmp_path: Path) -> None:
    for name, expected in (("mistral", "window"), ("llama4_text", "temperature"), ("bloom", "bias")):
        golden = write_golden(ww.from_huggingface(config_of(name)), tmp_path / name)
        assert any(expected in kind.names for kind in golden.kinds), name
    bias = read_golden(tmp_path / "bloom")[1]["kind.0.bias"]
    alibi = ww.ALiBi(bias.shape[0])
    distances = torch.tensor(golden.distances)
    torch.testing.assert_close(torch.from_numpy(bias), alibi.curve(torch.device("cpu"))(
        torch.arange(len(bias))[:, None], distances).double())  # fmt: skip
    gemma = write_golden(ww.from_huggingface(config_of("gemma")), tmp_path / "gemma")
    scales = {n: x for n, x in read_golden(tmp_path / "gemma")[1].items() if n.startswith("embedding")}
    assert set(scales) == {"embedding_scale", "embedding_scale_in_bfloat16"}
    assert gemma.kinds[0].layout == "half"


EXPECTED = {
    "bert": {"scale"},
    "bloom": {"bias"},
    "cohere2": {"window", "cos", "rotated_query"},
    "falcon": {"cos", "magnitude"},
    "gemma4_text": {"window", "embedding_scale", "embedding_scale_in_bfloat16"},
    "gpt_oss": {"window", "magnitude"},
    "granite_swa": {"window", "inverse_frequencies"},
    "llama4_text": {"temperature", "window", "pairs"},
    "mimo_v2_flash": {"window", "rotated_key"},
    "ministral3": {"temperature", "magnitude"},
    "mpt": {"bias"},
    "opt": {"scale"},
    "qwen2_vl_text": {"cos", "sin"},
}
"""Some of the numbers that golden vectors of these types have."""


@pytest.mark.parametrize("name", EXPECTED)
def test_every_wrong_number_breaks_its_own_law(name: str, tmp_path: Path) -> None:
    written = write_golden(ww.from_huggingface(config_of(name)), tmp_path / "golden")
    assert written.position_offset == {"opt": 2}.get(name, 0)
    sinks = name in ("gpt_oss", "granite_swa", "mimo_v2_flash")
    assert any("sinks" in left for kind in written.kinds for left in kind.not_written) == sinks
    right = load_file(tmp_path / "golden" / "golden.safetensors")
    assert {key.rpartition(".")[2] for key in right} >= EXPECTED[name]
    for key, value in right.items():
        wrong = np.asarray(
            value + 1 if value.dtype.kind != "f" else np.where(np.isfinite(value), value * 1.05 + 0.01, 0)
        )
        save_file({key: wrong}, tmp_path / "port")
        failed = [
            each.law for report in verify(tmp_path / "golden", tmp_path / "port").values() for each in report.failed
        ]
        assert len(failed) == 1, key
        assert failed[0].replace(" ", "_") in key.replace(" ", "_"), (failed, key)


def test_what_does_not_fit_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="no name of these golden vectors"):
        verify(folder, port(folder, angles=np.zeros(3)))
    with pytest.raises(SettingError, match="has the shape"):
        verify(folder, port(folder, cos=np.zeros(3)))
    save_file({}, tmp_path / "empty")
    with pytest.raises(SettingError, match="has no numbers"):
        verify(folder, tmp_path / "empty")
    with pytest.raises(CheckpointError, match="exists already"):
        write_golden(ww.from_huggingface(config_of("llama")), folder)
    write_golden(ww.from_huggingface(config_of("llama")), folder, force=True)
    numbers = load_file(folder / "golden.safetensors")
    save_file(numbers | {"kind.0.scale": np.array(numbers["kind.0.scale"] * 2)}, folder / "golden.safetensors")
    with pytest.raises(CheckpointError, match="its hash is another"):
        read_golden(folder)


def test_the_commands(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config_of("gpt_oss").to_dict()))
    written = json_of("golden", tmp_path / "config.json", "--out", tmp_path / "golden")
    assert written["format"] == "whatwhere-golden"
    status, out, _ = whatwhere("verify", tmp_path / "golden", port(tmp_path / "golden"))
    assert status == 0
    assert "laws pass" in out
    wrong = port(tmp_path / "golden", magnitude=np.array(2.0))
    status, out, _ = whatwhere("verify", tmp_path / "golden", wrong, "--json")
    assert status == 1
    assert [f["law"] for report in json.loads(out).values() for f in report["findings"] if f["outcome"] == "fails"] == [
        "magnitude"
    ]
    assert "no format" not in error_of("verify", tmp_path, wrong)
