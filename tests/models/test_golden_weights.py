"""Golden vectors of learned numbers, from a model's files, and of the keys that windows leave."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from safetensors.torch import save_file
from transformers.masking_utils import chunked_overlay, sliding_window_bidirectional_overlay, sliding_window_overlay

import whatwhere as ww
from tests.running import json_of
from whatwhere.models.golden import verify, write_golden

from .tiny import config_of, model_of


def saved(name: str, folder: Path, **settings: Any) -> Any:
    """Return a random model of a type, whose learned numbers are all different, and save it."""
    model = model_of(config_of(name, **settings))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.normal_()
    model.save_pretrained(folder / "model")
    return model


def require(folder: Path, numbers: dict[str, torch.Tensor]) -> None:
    """Check the numbers of a port, and that a change of any of them breaks its law."""
    for factor, most in ((1.0, 0), (1.01, len(numbers))):
        changed = {name: (x.detach() * factor).contiguous() for name, x in numbers.items()}
        save_file(changed, folder / "port")
        failed = [
            each
            for report in verify(folder / "golden", folder / "port", partial=True).values()
            for each in report.failed
        ]
        assert len(failed) == most


@pytest.mark.parametrize("name", ["flint", "gpt_oss", "hy_v4", "mimo_v2_flash"])
def test_sinks_are_those_of_the_weights(name: str, tmp_path: Path) -> None:
    """Each of these types writes them under a name of its own."""
    model = saved(name, tmp_path)
    kinds = json_of("golden", tmp_path / "model", "--out", tmp_path / "golden")["kinds"]
    modules = ((path.split("."), module) for path, module in model.named_modules())
    sinks = {path[-2]: module.sinks for path, module in modules if getattr(module, "sinks", None) is not None}
    having = [(n, kind) for n, kind in enumerate(kinds) if str(kind["layers"][0]) in sinks]
    assert sum(len(kind["layers"]) for _, kind in having) == len(sinks) > 0
    assert not any("sinks" in left for kind in kinds for left in kind["not_written"])
    numbers = {f"kind.{n}.sink": torch.stack([sinks[str(layer)] for layer in kind["layers"]]) for n, kind in having}
    require(tmp_path, numbers)


@pytest.mark.parametrize("part", ["encoder", "decoder"])
def test_the_bias_of_t5_is_that_of_its_attention(part: str, tmp_path: Path) -> None:
    model = saved("t5", tmp_path)
    golden = write_golden(ww.read(tmp_path / "model", part=part), tmp_path / "golden")
    attention = getattr(model, part).block[0].layer[0].SelfAttention
    with torch.no_grad():
        past, later = attention.compute_bias(4097, 1)[0, :, :, 0], attention.compute_bias(1, 4097)[0, :, 0]
    numbers = {"kind.0.bias": past[:, list(golden.distances)]}
    if part == "encoder":
        numbers["kind.0.bias_of_later_keys"] = later[:, list(golden.distances)]
    require(tmp_path, numbers)
    assert golden.kinds[0].layers == tuple(range(len(getattr(model, part).block)))


def test_learned_frequencies_and_factors_are_those_of_the_weights(tmp_path: Path) -> None:
    model = saved("mistral_large4_text", tmp_path)
    golden = write_golden(ww.read(tmp_path / "model"), tmp_path / "golden")
    at = torch.tensor(golden.positions)
    numbers = {}
    for n, kind in enumerate(golden.kinds):
        scalings = [model.layers[layer].self_attn.softmax_scaling for layer in kind.layers]
        factors = [each.scale[:, None] * (at + 1.0).log() + each.bias[:, None] for each in scalings]
        numbers[f"kind.{n}.temperature"] = torch.stack(factors)
    alpha = model.rotary_emb.alpha.double()
    numbers["kind.0.inverse_frequencies"] = model.rotary_emb.inv_freq.double() * alpha.exp()
    for name, right in load_file(tmp_path / "golden" / "golden.safetensors").items():
        if name in numbers:
            np.testing.assert_allclose(right, numbers[name].detach().numpy(), rtol=1e-6)
            del numbers[name]
    assert not numbers


SEEN = {
    "llama4_text": ("attention_chunk_size", 1000, lambda size: chunked_overlay(size, torch.zeros(1, dtype=torch.long))),
    "mistral": ("sliding_window", 1000, sliding_window_overlay),
    "modernbert": ("local_attention", 2000, lambda size: sliding_window_bidirectional_overlay(size // 2)),
}


@pytest.mark.parametrize("name", SEEN)
def test_keys_that_windows_leave_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    key, size, mask_of = SEEN[name]
    golden = write_golden(ww.from_huggingface(config_of(name, **{key: size})), tmp_path / "golden")
    ((n, kind),) = [(n, kind) for n, kind in enumerate(golden.kinds) if "window" in kind.names]
    sees = mask_of(size)
    keys = torch.arange(132_000 + size)
    zero = torch.zeros((), dtype=torch.long)
    first, last = [], []
    for position in golden.positions:
        seen = keys[sees(zero, zero, torch.tensor(position), keys)].tolist()
        first.append(seen[0])
        last.append(seen[-1])
    numbers = {"first_key": first} | ({"last_key": last} if name == "modernbert" else {})
    assert {each for each in kind.names if each.endswith("key") and "rotated" not in each} - {"key"} == numbers.keys()
    save_file({f"kind.{n}.{each}": torch.tensor(x) for each, x in numbers.items()}, tmp_path / "port")
    (report,) = verify(tmp_path / "golden", tmp_path / "port", partial=True).values()
    report.require()


def test_a_window_is_no_chunk(tmp_path: Path) -> None:
    """A port that has a sliding window of the size of Llama 4's chunks sees other keys from the second chunk on."""
    golden = write_golden(ww.from_huggingface(config_of("llama4_text", attention_chunk_size=1000)), tmp_path / "golden")
    first = [max(0, position - 999) for position in golden.positions]
    save_file({"kind.0.first_key": torch.tensor(first)}, tmp_path / "port")
    (report,) = verify(tmp_path / "golden", tmp_path / "port", partial=True).values()
    assert [(each.law, each.first) for each in report.failed] == [("first key", 4097)]
    assert json.loads((tmp_path / "golden" / "golden.json").read_text())["kinds"][0]["names"][-1] == "first_key"
