"""Golden vectors, also of learned numbers from files, equal the modules of transformers, and name what is wrong."""

import json
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from safetensors.torch import save_file as save_tensors
from transformers.masking_utils import chunked_overlay, sliding_window_bidirectional_overlay, sliding_window_overlay
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.ministral3.modeling_ministral3 import get_llama_4_attn_scale
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

import whatwhere as ww
from tests.running import error_of, json_of, whatwhere
from whatwhere.errors import CheckpointError, SettingError
from whatwhere.models.golden import read_golden, verify, write_golden
from whatwhere.records import with_checksum

from .tiny import config_of, model_of

LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip
FAMILIES = ("cohere", "deepseek_v3", "gemma3_text", "glm", "gpt_oss", "llama 3.1", "modernbert")


def written(name: str, folder: Path, **settings: Any) -> Any:
    """Write the golden vectors of a tiny configuration, and return it with their description."""
    config = config_of(name, **settings)
    return config, write_golden(ww.from_huggingface(config), folder / "golden")


def failed_of(folder: Path, numbers: dict[str, Any], **options: Any) -> list[Any]:
    """Write some numbers of a port, compare them with the golden vectors, and return what fails."""
    save_tensors({name: torch.as_tensor(x).detach().contiguous() for name, x in numbers.items()}, folder / "port")
    reports = verify(folder / "golden", folder / "port", partial=True, **options)
    assert reports
    return [each for report in reports.values() for each in report.failed]


def require(folder: Path, numbers: dict[str, Any], **options: Any) -> None:
    """Require the laws of the numbers of a port, and that a change of any of them breaks its own."""
    assert failed_of(folder, numbers, **options) == []
    wrong = {name: 1.01 * torch.as_tensor(x) for name, x in numbers.items()}
    assert len(failed_of(folder, wrong, **options)) == len(numbers)


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
    at = torch.tensor(golden.positions)[None]
    for n, kind in enumerate(golden.kinds):
        pairs = right[f"kind.{n}.inverse_frequencies"].shape[0]
        types = getattr(model.config, "layer_types", None)
        by_type = [types[kind.layers[0]]] if types and "layer_type" in signature(rotary.forward).parameters else []
        tables = zip(("cos", "sin"), rotary(torch.zeros(1), at, *by_type), strict=True)
        numbers |= {f"kind.{n}.{name}": per_pair(table, pairs).astype(np.float32) for name, table in tables}
        attention = [m for m in model.modules() if type(m).__name__.endswith("Attention") and hasattr(m, "scaling")]
        if attention:  # ModernBERT leaves the scale to its attention function
            numbers[f"kind.{n}.scale"] = np.array(attention[kind.layers[0]].scaling)
    return numbers


@pytest.mark.parametrize("family", FAMILIES)
def test_they_equal_the_modules_of_transformers(family: str, tmp_path: Path) -> None:
    name, _, version = family.partition(" ")
    config, golden = written(name, tmp_path, **({"rope_parameters": LLAMA3} if version else {}))
    numbers = of_transformers(model_of(config), golden, read_golden(tmp_path / "golden")[1])
    require(tmp_path, numbers, float32_angles=True)
    assert {f"kind.{n}.cos" for n in range(len(golden.kinds))} <= numbers.keys()


def test_biases_are_those_of_transformers(tmp_path: Path) -> None:
    """Of six heads, for which slopes are no powers of one number, and with other slopes."""
    for name in ("bloom", "mpt"):
        (tmp_path / name).mkdir()
        settings = {"n_head": 6, "hidden_size": 48} if name == "bloom" else {"n_heads": 6, "d_model": 48}
        settings |= {} if name == "bloom" else {"attn_config": {"alibi_bias_max": 16}}
        _, golden = written(name, tmp_path / name, **settings)
        if name == "bloom":
            last = build_alibi_tensor(torch.ones(1, 4097), 6, torch.float32)[:, 0]
            right = last - last[:, -1:]
        else:
            right = build_mpt_alibi_tensor(6, 4097, 16)[:, 0]
        require(tmp_path / name, {"kind.0.bias": right[:, [4096 - distance for distance in golden.distances]]})


def test_the_temperature_of_ministral3_is_that_of_transformers(tmp_path: Path) -> None:
    yarn = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 4096}
    _, golden = written("ministral3", tmp_path, rope_parameters={**yarn, "llama_4_scaling_beta": 0.1})
    right = get_llama_4_attn_scale(torch.tensor([golden.positions]), 0.1, 4096)[0, 0, :, 0]
    assert right[-1] > 1.3
    require(tmp_path, {"kind.0.temperature": right})


@pytest.mark.parametrize("name", ["gemma", "gemma4_text"])
def test_embedding_scales_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    """A table of ones is what the model multiplies; in bfloat16 it rounds the factor first."""
    config, _ = written(name, tmp_path, hidden_size=80, num_attention_heads=4)
    model = model_of(config)
    reached: list[torch.Tensor] = []
    first = next(m for m in model.modules() if type(m).__name__.endswith("DecoderLayer"))
    first.register_forward_pre_hook(lambda _, args, kwargs: reached.append(args[0]), with_kwargs=True)
    with torch.no_grad():
        model.get_input_embeddings().weight.fill_(1.0)
        model(torch.tensor([[3]]))
        model.bfloat16()(torch.tensor([[3]]))
    exact, rounded = (x.flatten()[0].float() for x in reached)
    assert exact != rounded
    require(tmp_path, {"embedding_scale": exact, "embedding_scale_in_bfloat16": rounded})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    written("llama", tmp_path, rope_parameters=LLAMA3)
    return tmp_path / "golden"


def port(folder: Path, **changed: Any) -> Path:
    """Return a file with the right numbers but for some, of the first kind of layer."""
    numbers = load_file(folder / "golden.safetensors")
    numbers |= {f"kind.0.{name}": np.array(value, order="C") for name, value in changed.items()}
    save_file({name: value for name, value in numbers.items() if name.startswith("kind.0.")}, folder / "../port")
    return folder / "../port"


def test_a_number_that_a_port_has_not_written_fails(folder: Path) -> None:
    numbers = load_file(folder / "golden.safetensors")
    names = [name for name in numbers if not name.endswith((".query", ".key"))]  # which are given
    for left_out in names:
        save_file({name: numbers[name] for name in names if name != left_out}, folder / "../port")
        reports = verify(folder, folder / "../port").values()
        (finding,) = (each for report in reports for each in report.failed)
        assert finding.law == left_out.split(".")[-1].replace("_", " ")
        assert finding.note.startswith(f"the file has no {left_out}; ")
        assert all(report.passed for report in verify(folder, folder / "../port", partial=True).values())
    save_file({name: numbers[name] for name in names}, folder / "../port")
    assert all(report.passed for report in verify(folder, folder / "../port").values())


def test_known_mistakes_of_a_rotation_are_named(folder: Path) -> None:
    right = {name.removeprefix("kind.0."): x for name, x in load_file(folder / "golden.safetensors").items()}
    q, pairs, cos, sin = (right[name] for name in ("query", "pairs", "cos", "sin"))

    def rotated(pairs: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
        out = q.copy()
        a, b = q[:, pairs[:, 0]], q[:, pairs[:, 1]]
        out[:, pairs[:, 0]], out[:, pairs[:, 1]] = a * cos - b * sin, a * sin + b * cos
        return out

    interleaved = np.arange(pairs.size).reshape(pairs.shape)
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


@pytest.mark.parametrize(
    ("kind", "name", "mistake", "words"),
    [
        ("gpt_oss", "cos", lambda x, right: x / right["magnitude"], "magnitude is not applied"),
        ("gpt_oss", "magnitude", lambda x, _: np.ones_like(x), "magnitude is not applied"),
        ("gpt_oss", "window", lambda x, _: x - 1, "off by one"),
        ("gpt_oss", "first_key", lambda x, _: np.where(x > 0, x + 1, x), "off by one"),
        ("bert", "scale", lambda x, _: x**2, "the square root is missing"),
        ("bert", "scale", lambda x, _: np.ones_like(x), "not scaled"),
        ("t5", "buckets", lambda x, _: np.where(np.arange(x.size).reshape(x.shape) == 6, x + 1, x), "truncates"),
        ("bloom", "bias", lambda x, _: -x, "opposite sign"),
        ("llama", "sin", lambda x, _: np.where(np.abs(x) > 2, x, np.concatenate([x[:3], x[3:] + 0.1])), "are rounded"),
    ],
)
def test_known_mistakes_in_other_numbers_are_named(
    kind: str, name: str, mistake: Any, words: str, tmp_path: Path
) -> None:
    written(kind, tmp_path)
    right = {each.removeprefix("kind.0."): x for each, x in load_file(tmp_path / "golden/golden.safetensors").items()}
    reports = verify(
        tmp_path / "golden", port(tmp_path / "golden", **{name: mistake(right[name], right)}), partial=True
    )
    (finding,) = (each for report in reports.values() for each in report.failed)
    assert finding.law == name.replace("_", " ")
    assert words in finding.note


def test_a_wrong_factor_is_no_rounding_of_large_angles(folder: Path) -> None:
    right = load_file(folder / "golden.safetensors")
    wrong = {name: right[f"kind.0.{name}"] * 1.001 for name in ("cos", "sin")}
    (report,) = verify(folder, port(folder, **wrong), partial=True).values()
    assert [(each.law, each.note) for each in report.failed] == [("cos", ""), ("sin", "")]


def test_half_precision_is_judged_by_its_rounding(folder: Path) -> None:
    right = {name: torch.from_numpy(x) for name, x in load_file(folder / "golden.safetensors").items()}
    some = {name: x.bfloat16() for name, x in right.items() if name.endswith(("rotated_query", "cos"))}
    assert failed_of(folder.parent, some) == []
    assert len(failed_of(folder.parent, {name: x * 1.05 for name, x in some.items()})) == 2


EXPECTED = {
    "bert": {"scale"},
    "bloom": {"bias"},
    "falcon": {"cos", "magnitude"},
    "gemma4_text": {"window", "embedding_scale", "embedding_scale_in_bfloat16"},
    "gpt_oss": {"window", "magnitude"},
    "llama4_text": {"temperature", "window", "pairs"},
    "mimo_v2_flash": {"window", "rotated_key"},
    "ministral3": {"temperature", "magnitude"},
    "mpt": {"bias"},
    "opt": {"scale"},
    "t5": {"buckets"},
    "qwen2_vl_text": {"cos", "sin"},
}
"""Some of the numbers that golden vectors of these types have."""


@pytest.mark.parametrize("name", EXPECTED)
def test_every_wrong_number_breaks_its_own_law(name: str, tmp_path: Path) -> None:
    _, golden = written(name, tmp_path)
    assert golden.position_offset == {"opt": 2}.get(name, 0)
    sinks = name in ("gpt_oss", "mimo_v2_flash")
    assert any("sinks" in left for kind in golden.kinds for left in kind.not_written) == sinks
    right = load_file(tmp_path / "golden" / "golden.safetensors")
    assert {key.rpartition(".")[2] for key in right} >= EXPECTED[name]
    for key, value in right.items():
        assert value.shape or not failed_of(tmp_path, {key: value.reshape(1)})
        real = value.dtype.kind == "f"
        wrong = np.asarray(np.where(np.isfinite(value), value * 1.05 + 0.01, 0) if real else value + 1)
        assert [each.law.replace(" ", "_") for each in failed_of(tmp_path, {key: wrong})] == [key.rpartition(".")[2]]


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"angles": torch.zeros(3)}, "not a name of these golden vectors"),
        ({"cos": torch.zeros(3)}, "has the shape"),
        ({}, "has no numbers"),
        ({"cos": torch.zeros(4, 8, dtype=torch.complex64)}, "is needed"),
    ],
)
def test_numbers_that_cannot_be_compared(numbers: dict[str, torch.Tensor], message: str, folder: Path) -> None:
    save_tensors({f"kind.0.{name}": x for name, x in numbers.items()}, folder / "../port")
    with pytest.raises(SettingError, match=message):
        verify(folder, folder / "../port")


def test_golden_vectors_that_are_not_as_they_were_written(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"has no golden.json\.\nPass a folder that whatwhere golden"):
        verify(tmp_path, tmp_path / "port")
    with pytest.raises(CheckpointError, match="exists already"):
        write_golden(ww.from_huggingface(config_of("llama")), folder)
    write_golden(ww.from_huggingface(config_of("llama")), folder, force=True)
    numbers = load_file(folder / "golden.safetensors")
    save_file(numbers | {"kind.0.scale": np.array(numbers["kind.0.scale"] * 2)}, folder / "golden.safetensors")
    with pytest.raises(CheckpointError, match="its hash is another"):
        read_golden(folder)


def test_a_description_of_other_numbers_is_refused(folder: Path) -> None:
    """Only the numbers have a hash: a changed list of names would leave laws out."""
    record = json.loads((folder / "golden.json").read_text())
    record["kinds"][0]["names"].pop()
    (folder / "golden.json").write_text(json.dumps(with_checksum(record)))
    with pytest.raises(CheckpointError, match="other names, positions or distances"):
        verify(folder, port(folder))


def test_the_commands(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config_of("gpt_oss").to_dict()))
    written = json_of("golden", tmp_path / "config.json", "--out", tmp_path / "golden")
    assert written["format"] == "whatwhere-golden"
    status, out, _ = whatwhere("verify", tmp_path / "golden", tmp_path / "golden" / "golden.safetensors")
    assert status == 0
    assert "laws pass" in out
    some = port(tmp_path / "golden")  # of the first kind of layer alone
    assert whatwhere("verify", tmp_path / "golden", some)[0] == 1
    assert whatwhere("verify", tmp_path / "golden", some, "--partial")[0] == 0
    wrong = port(tmp_path / "golden", magnitude=np.array(2.0))
    status, out, _ = whatwhere("verify", tmp_path / "golden", wrong, "--partial", "--json")
    assert status == 1
    findings = [each for report in json.loads(out).values() for each in report["findings"]]
    assert [each["law"] for each in findings if each["outcome"] == "fails"] == ["magnitude"]
    assert "no format" not in error_of("verify", tmp_path, wrong)


# Learned numbers, from a model's files, and the keys that windows leave


def saved(name: str, folder: Path) -> Any:
    """Return a random model of a type, whose learned numbers are all different, and save it."""
    model = model_of(config_of(name))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.normal_()
    model.save_pretrained(folder / "model")
    return model


@pytest.mark.parametrize("name", ["flint", "mimo_v2_flash"])
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


def test_numbers_of_other_heads_than_those_of_the_weights_are_refused(tmp_path: Path) -> None:
    saved("llama", tmp_path)
    config = tmp_path / "model/config.json"
    config.write_text(config.read_text().replace('"head_dim": 16', '"head_dim": 32'))
    said = error_of("golden", tmp_path / "model", "--out", tmp_path / "golden")
    assert "has 64 rows, but by num_key_value_heads and head_dim of the configuration 128" in said


@pytest.mark.parametrize("part", ["encoder", "decoder"])
def test_the_bias_of_t5_is_that_of_its_attention(part: str, tmp_path: Path) -> None:
    """And its buckets: the biases of the first head are the numbers of the rows that the attention looks up."""
    model = model_of(config_of("t5", relative_attention_num_buckets=12, relative_attention_max_distance=50))
    attention = getattr(model, part).block[0].layer[0].SelfAttention
    table = attention.relative_attention_bias.weight
    with torch.no_grad():
        table[:, 0] = torch.arange(len(table))
        past, later = attention.compute_bias(4097, 1)[0, :, :, 0], attention.compute_bias(1, 4097)[0, :, 0]
    model.save_pretrained(tmp_path / "model")
    golden = write_golden(ww.read(tmp_path / "model", part=part), tmp_path / "golden")
    biases = {"": past} | ({"_of_later_keys": later} if part == "encoder" else {})
    numbers = {f"bias{side}": bias[:, list(golden.distances)] for side, bias in biases.items()}
    numbers |= {name.replace("bias", "buckets"): bias[0].long() for name, bias in numbers.items()}
    require(tmp_path, {f"kind.0.{name}": x for name, x in numbers.items()})
    assert {name for name in golden.kinds[0].names if name.startswith(("bias", "buckets"))} == numbers.keys()
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
    found = load_file(tmp_path / "golden" / "golden.safetensors")
    for name, right in numbers.items():
        np.testing.assert_allclose(found[name], right.detach().numpy(), rtol=1e-6)


def test_rows_of_learned_positions_are_those_of_the_weights(tmp_path: Path) -> None:
    """OPT reads the third row of its table at position 0."""
    table = saved("opt", tmp_path).model.decoder.embed_positions.weight
    write_golden(ww.read(tmp_path / "model"), tmp_path / "golden")
    assert np.array_equal(load_file(tmp_path / "golden" / "golden.safetensors")["position_rows"], table[2:6].detach())
    for first, named in ((0, True), (1, True), (7, False)):
        (wrong,) = failed_of(tmp_path, {"position_rows": table[first : first + 4]})
        assert ("of other positions" in wrong.note) == named


SEEN = {
    "llama4_text": ("attention_chunk_size", 1000, lambda size: chunked_overlay(size, torch.zeros(1, dtype=torch.long))),
    "mistral": ("sliding_window", 1000, sliding_window_overlay),
    "modernbert": ("local_attention", 2000, lambda size: sliding_window_bidirectional_overlay(size // 2)),
}


@pytest.mark.parametrize("name", SEEN)
def test_keys_that_windows_leave_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    key, size, mask_of = SEEN[name]
    _, golden = written(name, tmp_path, **{key: size})
    ((n, kind),) = [(n, kind) for n, kind in enumerate(golden.kinds) if "window" in kind.names]
    sees = mask_of(size)
    keys = torch.arange(132_000 + size)
    zero = torch.zeros((), dtype=torch.long)
    seen = [keys[sees(zero, zero, torch.tensor(position), keys)] for position in golden.positions]
    numbers = {"first_key": [int(each[0]) for each in seen]}
    numbers |= {"last_key": [int(each[-1]) for each in seen]} if name == "modernbert" else {}
    assert {each for each in kind.names if each.endswith("key") and "rotated" not in each} - {"key"} == numbers.keys()
    assert failed_of(tmp_path, {f"kind.{n}.{each}": x for each, x in numbers.items()}) == []
