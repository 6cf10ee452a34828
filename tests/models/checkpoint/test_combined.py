"""Tensors that are stored in parts: quantized tables, adapters of PEFT, shared rows of model2vec; read or refused."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from safetensors.torch import save_file

import whatwhere as ww
from whatwhere.analysis.checkpoint_difference import difference
from whatwhere.analysis.token_neighbors import token_similarity
from whatwhere.errors import CheckpointError, WhatWhereError
from whatwhere.models.checkpoint import Checkpoint
from whatwhere.surgery import convert_dtype, convert_format, resize_checkpoint, trim_checkpoint

from .samples import WORDS, tokenizer

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")  # of peft and transformers
RNG = np.random.default_rng(0)
ROWS, DIM = 7, 96
TABLE, HEAD = "model.embed_tokens", "lm_head"
LLAMA = {"model_type": "llama", "vocab_size": ROWS, "hidden_size": DIM, "num_attention_heads": 2,
         "num_hidden_layers": 1, "tie_word_embeddings": False}  # fmt: skip
FP8 = torch.float8_e4m3fn


def folder(path: Path, tensors: dict[str, torch.Tensor], **config: Any) -> Path:
    """Write the folder of a model with a tokenizer of seven words."""
    path.mkdir(exist_ok=True)
    save_file(tensors, path / "model.safetensors")
    (path / "config.json").write_text(json.dumps(LLAMA | config))
    (path / "tokenizer.json").write_bytes(tokenizer(WORDS))
    return path


# MLX


@pytest.mark.parametrize(
    ("bits", "words", "scale"),
    [
        (3, [[2785698543, 3121923550, 2007597720], [4015195441, 1281165922, 2562446529]], -4.0),
        (5, [[2814523103, 1595807754, 2167593177, 1269255403, 1841203428],
             [806702980, 2981281340, 2581004901, 298358606, 2668157821]], -0.9032257795333862),
        (6, [[3089480575, 3895593289, 3631639540, 3720086692, 1092002722, 1860161675],
             [2186440201, 2600286732, 19478045, 2833823599, 4095922245, 2609011639]], -0.4444444477558136),
    ],
)  # fmt: skip
def test_mlx_itself(tmp_path: Path, bits: int, words: list[list[int]], scale: float) -> None:
    """What mlx.core.quantize 0.32.4 made of 37 n modulo 29 is these numbers, to half a step."""
    numbers = {"weight": torch.tensor(words).to(torch.uint32), "scales": torch.full((2, 1), scale), "biases":
               torch.full((2, 1), 28.0)}  # fmt: skip
    path = folder(tmp_path / "m", {f"{TABLE}.{end}": one for end, one in numbers.items()},
                  quantization={"bits": bits, "group_size": 32})  # fmt: skip
    right = (np.arange(64).reshape(2, 32) * 37) % 29
    assert np.abs(Checkpoint.open(path).array(f"{TABLE}.weight") - right).max() <= abs(scale) / 2 + 1e-5


def mlx(bits: int, group: int, name: str = TABLE) -> tuple[dict[str, torch.Tensor], np.ndarray]:
    """Pack random codes as a long number, the first in its lowest bits; return the tensors and the numbers."""
    codes = RNG.integers(0, 2**bits, (ROWS, DIM))
    long = [sum(int(code) << n * bits for n, code in enumerate(row)) for row in codes]
    words = [[number >> 32 * n & (2**32 - 1) for n in range(DIM * bits // 32)] for number in long]
    scales, biases = (torch.randn(ROWS, DIM // group).half() for _ in range(2))
    right = [[codes[i, j] * float(scales[i, j // group]) + float(biases[i, j // group]) for j in range(DIM)]
             for i in range(ROWS)]  # fmt: skip
    tensors = {"weight": torch.tensor(words).to(torch.uint32), "scales": scales, "biases": biases}
    return {f"{name}.{end}": one for end, one in tensors.items()}, np.array(right)


@pytest.mark.every_nth(3)
@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
@pytest.mark.parametrize("settings", ["both", "own layer", "shards"])
def test_mlx(tmp_path: Path, bits: int, settings: str) -> None:
    tensors, right = mlx(bits, 32)
    quantization: dict[str, Any] = {"bits": bits, "group_size": 32, "mode": "affine"}
    if settings == "own layer":  # as a recipe of mixed bits writes it
        quantization = {"bits": 2 if bits == 4 else 4, "group_size": 96, TABLE: quantization, HEAD: False}
    path = folder(tmp_path / "m", tensors, quantization=quantization, quantization_config=quantization)
    if settings == "shards":
        (path / "model.safetensors").unlink()
        for n, (name, one) in enumerate(tensors.items()):
            save_file({name: one}, path / f"{n}.safetensors")
        index = {"weight_map": {name: f"{n}.safetensors" for n, name in enumerate(tensors)}}
        (path / "model.safetensors.index.json").write_text(json.dumps(index))
    checkpoint = Checkpoint.open(path)
    assert checkpoint.token_table == f"{TABLE}.weight"
    assert list(checkpoint.tensors) == [f"{TABLE}.weight"]
    assert checkpoint.entry(f"{TABLE}.weight").shape == (ROWS, DIM)
    assert_allclose(checkpoint.array(checkpoint.token_table), right, rtol=1e-5, atol=1e-5)
    assert_allclose(checkpoint.array(checkpoint.token_table, [6, 0, 6]), right[[6, 0, 6]], rtol=1e-5, atol=1e-5)
    assert checkpoint.tensor(checkpoint.token_table, slice(2, 4)).dtype == torch.float32
    unit = right / np.linalg.norm(right, axis=1, keepdims=True)
    found = ww.neighbors(path, "cat", k=2).tokens[0].neighbors
    order = np.argsort(-(unit @ unit[1]))[1:3]
    assert [each.token for each in found] == [WORDS[n] for n in order]


# 8 bits with a scale


I8, E5M2 = torch.int8, torch.float8_e5m2
SCALED: dict[str, tuple[torch.dtype, tuple[int, ...], tuple[int, int], str]] = {
    "tensor": (FP8, (1,), (200, 130), "weight_scale"), "scalar": (FP8, (), (200, 130), "weight_scale"),
    "row": (FP8, (200, 1), (1, 130), "weight_scale"), "row in bf16": (FP8, (200,), (1, 130), "weight_scale"),
    "block": (FP8, (2, 2), (128, 128), "weight_scale_inv"), "stated": (FP8, (7, 3), (32, 64), "weight_scale_inv"),
    "group": (FP8, (200, 5), (1, 26), "weight_scale"), "e5m2": (E5M2, (200, 1), (1, 130), "weight_scale"),
    "comfy": (FP8, (), (200, 130), "scale_weight"), "int8 row": (I8, (200, 1), (1, 130), "weight_scale"),
    "int8 in bf16": (I8, (1,), (200, 130), "weight_scale"), "int8 group": (I8, (200, 5), (1, 26), "weight_scale"),
}  # fmt: skip
"""Of a table of 200 x 130 the type, the shape of its scale, the block of each factor, and the name of the scale."""


@pytest.mark.parametrize("case", SCALED)
def test_scaled(tmp_path: Path, case: str) -> None:
    dtype, shape, block, end = SCALED[case]
    codes = torch.randn(200, 130).to(dtype) if dtype != I8 else torch.randint(-127, 128, (200, 130), dtype=dtype)
    scale = (torch.rand(shape) + 0.5).to(torch.bfloat16 if "bf16" in case else torch.float32)
    factors = scale.double().numpy().reshape(-1, shape[1] if len(shape) == 2 else 1)
    right = codes.double().numpy() * np.kron(factors, np.ones(block))[:200, :130]
    stated = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [32, 64]}} if case == "stated" else {}
    tensors = {"weight": codes, end: scale, "input_scale": torch.ones(1)}
    path = folder(tmp_path / "m", {f"{TABLE}.{name}": one for name, one in tensors.items()}, **stated)
    checkpoint = Checkpoint.open(path)
    assert_allclose(checkpoint.array(checkpoint.token_table), right, rtol=1e-6)
    some = [199, 0, 129, 127, 128, 0]
    assert_allclose(checkpoint.array(checkpoint.token_table, some), right[some], rtol=1e-6)


def test_plain_numbers_of_eight_bits_need_no_scale(tmp_path: Path) -> None:
    codes = torch.randn(ROWS, DIM).to(FP8)
    plain = folder(tmp_path / "m", {f"{TABLE}.weight": codes})
    assert_allclose(Checkpoint.open(plain).array(f"{TABLE}.weight"), codes.float().numpy())
    assert Checkpoint.open(plain).tensor(f"{TABLE}.weight").dtype == FP8
    stated = folder(tmp_path / "n", {f"{TABLE}.weight": codes}, quantization_config={"quant_method": "fp8"})
    with pytest.raises(CheckpointError, match="0 scales"):
        Checkpoint.open(stated).array(f"{TABLE}.weight")


# Refused by name

U8 = torch.zeros(ROWS, DIM // 2, dtype=torch.uint8)
ONES = torch.ones(ROWS, DIM, dtype=I8)
I32 = torch.ones(ROWS, 12, dtype=torch.int32)
SCALE = torch.ones(ROWS, 1)
STATE = torch.frombuffer(bytearray(json.dumps({"shape": [ROWS, DIM]}).encode()), dtype=torch.uint8)
QUANT_STATE = "weight.quant_state.bitsandbytes__nf4"
REFUSED: dict[str, tuple[dict[str, torch.Tensor], tuple[int, int]]] = {
    "mxfp4'": ({"weight": torch.zeros(ROWS, 12, dtype=torch.uint32), "scales": torch.ones(ROWS, 3, dtype=torch.uint8)},
               (ROWS, DIM)),
    "MXFP4": ({"weight_blocks": U8, "weight_scales": U8.clone()}, (ROWS, DIM // 2)),
    "MXFP4 ": ({"weight_blocks": U8.reshape(ROWS, 3, 16), "weight_scales": U8[:, :3].clone()}, (ROWS, DIM)),
    "MXFP4  ": ({"_blocks": U8.reshape(ROWS, 3, 16), "_scales": U8[:, :3].clone()}, (ROWS, DIM)),  # GPT-OSS's names
    "NVFP4": ({"weight": U8, "weight_scale": torch.ones(ROWS, 6).to(FP8), "weight_scale_2": torch.ones(1)},
              (ROWS, DIM)),
    "compressed-tensors": ({"weight_packed": I32, "weight_scale": SCALE, "weight_shape": torch.tensor([ROWS, DIM])},
                           (ROWS, DIM)),
    "zero points": ({"weight": ONES, "weight_scale": SCALE, "weight_zero_point": ONES[:, :1].clone()}, (ROWS, DIM)),
    "GPTQ or AWQ": ({"qweight": torch.ones(12, ROWS, dtype=torch.int32), "scales": torch.ones(3, ROWS),
                     "qzeros": I32.clone(), "g_idx": torch.zeros(DIM, dtype=torch.int32)}, (ROWS, DIM)),
    "quanto": ({"weight._data": ONES, "weight._scale": SCALE}, (ROWS, DIM)),
    "bitsandbytes": ({"weight": torch.zeros(ROWS * DIM // 2, 1, dtype=torch.uint8), "weight.absmax": SCALE,
                      "weight.quant_map": torch.zeros(16), QUANT_STATE: STATE}, (ROWS, DIM)),
    "bitsandbytes ": ({"weight": ONES, "SCB": SCALE[:, 0].clone(), "weight_format": torch.tensor(0)}, (ROWS, DIM)),
    "HQQ": ({"W_q": U8, "scale": SCALE, "zero": SCALE.clone()}, (ROWS, DIM // 2)),
    "torchao": ({"_weight_qdata": ONES, "_weight_scale": SCALE}, (ROWS, DIM)),
    "EETQ": ({"weight": ONES, "weight_scales": SCALE[:, 0].clone()}, (ROWS, DIM)),
    "int8 beside some_factor": ({"weight": ONES, "some_factor": SCALE}, (ROWS, DIM)),
    "int8.* 0 scales": ({"weight": ONES}, (ROWS, DIM)),
    "does not fit": ({"weight": ONES, "weight_scale": torch.ones(ROWS - 1, 1)}, (ROWS, DIM)),
    "contradict": ({"weight": torch.zeros(ROWS, 12, dtype=torch.uint32), "scales": torch.ones(ROWS - 1, 3),
                    "biases": torch.ones(ROWS, 3)}, (ROWS, DIM)),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_other_codes_are_refused_by_name(tmp_path: Path, name: str) -> None:
    tensors, shape = REFUSED[name]
    mode = {"mxfp4'": "mxfp4", "contradict": "affine"}.get(name)
    config = {"quantization": {"bits": 4, "group_size": 32, "mode": mode}} if mode else {}
    dot = "" if any(end.startswith("_") and end.endswith("blocks") for end in tensors) else "."
    path = folder(tmp_path / "m", {f"{TABLE}{dot}{end}": one for end, one in tensors.items()}, **config)
    checkpoint = Checkpoint.open(path)
    assert checkpoint.token_table == f"{TABLE}.weight"
    assert checkpoint.entry(checkpoint.token_table).shape == shape
    for read in (lambda: checkpoint.array(f"{TABLE}.weight", [0]), lambda: ww.neighbors(path, "cat"),
                 lambda: resize_checkpoint(path, tmp_path / "out", vocab_size=9)):  # fmt: skip
        with pytest.raises(CheckpointError, match=name.strip()):
            read()
    assert not (tmp_path / "out").exists()
    found = ww.inspect(path)
    assert name.strip().split(".*")[0].split("'")[0] in str(found.norms)  # why that section is missing
    assert found.sizes.bytes == sum(one.nbytes for one in tensors.values())


def test_whole_numbers_are_no_rows(tmp_path: Path) -> None:
    save_file({"table": ONES}, tmp_path / "a.safetensors")
    with pytest.raises(CheckpointError, match="int8, codes or ids"):
        ww.neighbors(tmp_path / "a.safetensors", "#1")
    with pytest.raises(CheckpointError, match="int8, codes or ids"):
        resize_checkpoint(tmp_path / "a.safetensors", tmp_path / "out.safetensors", vocab_size=9)


def test_float64_is_no_code(tmp_path: Path) -> None:
    """Whose name begins as that of the codes of 6 bits, float6_e2m3."""
    rows = torch.randn(5, 3, dtype=torch.float64)
    checkpoint = Checkpoint.open(folder(tmp_path / "m", {f"{TABLE}.weight": rows}))
    assert np.array_equal(checkpoint.array(f"{TABLE}.weight"), rows.numpy())
    assert checkpoint.tensor(f"{TABLE}.weight").dtype == torch.float64


# The output projection and positions go through the same door


def test_output_projection_and_positions(tmp_path: Path) -> None:
    tensors, right = mlx(4, 32, HEAD)
    positions, places = mlx(8, 32, "model.embed_positions")
    table = {f"{TABLE}.weight": torch.randn(ROWS, DIM)}
    path = folder(tmp_path / "m", table | tensors, quantization={"bits": 4, "group_size": 32})
    checkpoint = Checkpoint.open(path)
    assert checkpoint.output_projection == "lm_head.weight"
    assert checkpoint.tied is False
    assert_allclose(checkpoint.array("lm_head.weight"), right, rtol=1e-5, atol=1e-5)
    with pytest.raises(CheckpointError, match="scales and biases of MLX"):
        resize_checkpoint(path, tmp_path / "out", vocab_size=9)
    path = folder(tmp_path / "p", table | positions, quantization={"bits": 8, "group_size": 32}, model_type="opt")
    assert_allclose(ww.load_where(path).where.input.weight, places, rtol=1e-5, atol=1e-5)
    with pytest.raises(CheckpointError, match="scales and biases of MLX"):
        resize_checkpoint(path, tmp_path / "out", positions=9)


def test_layers_that_are_quantized_leave_the_table_changeable(tmp_path: Path) -> None:
    """The table of DeepSeek-V3 is plain, beside layers of 8 bits, which are copied byte for byte."""
    layer = "model.layers.0.mlp.up_proj"
    tensors = {f"{TABLE}.weight": torch.randn(ROWS, DIM), f"{layer}.weight": torch.randn(130, DIM).to(FP8),
               f"{layer}.weight_scale_inv": torch.rand(2, 1)}  # fmt: skip
    path = folder(tmp_path / "m", tensors)
    resize_checkpoint(path, tmp_path / "out", vocab_size=9)
    convert_dtype(path, tmp_path / "half", "bfloat16")
    for name in ("out", "half"):
        before, after = (Checkpoint.open(each).array(f"{layer}.weight") for each in (path, tmp_path / name))
        assert np.array_equal(before, after)
    assert Checkpoint.open(tmp_path / "out").entry(f"{TABLE}.weight").shape == (9, DIM)
    with pytest.raises(CheckpointError, match="with weight_scale_inv"):
        convert_format(path, tmp_path / "all.safetensors", "safetensors")


def test_a_scale_beside_a_table_is_not_left_behind(tmp_path: Path) -> None:
    path = folder(tmp_path / "m", {f"{TABLE}.weight": torch.randn(ROWS, DIM), f"{TABLE}.row_scale": torch.ones(ROWS)})
    for change, settings in ((resize_checkpoint, {"vocab_size": 9}), (trim_checkpoint, {"keep_ids": range(5)})):
        with pytest.raises(CheckpointError, match="row_scale"):
            change(path, tmp_path / "out", **settings)


# model2vec


@pytest.mark.parametrize("case", ["mapping", "weights", "both", "int8", "int8 both"])
def test_model2vec(tmp_path: Path, case: str) -> None:
    """Token i has embeddings[mapping[i]] * weights[i], as model2vec 0.10 computes it."""
    rows = torch.randint(-127, 127, (4, 6), dtype=torch.int8) if "int8" in case else torch.randn(4, 6)
    rows = rows if case not in ("weights", "int8") else rows.repeat(2, 1)[:7]
    mapping, weights = torch.tensor([3, 0, 1, 2, 2, 0, 3]), torch.rand(7, dtype=torch.float64) + 0.5
    tensors = {"embeddings": rows.contiguous()}
    tensors |= {"mapping": mapping} if case not in ("weights", "int8") else {}
    tensors |= {"weights": weights} if "mapping" not in case and case != "int8" else {}
    path = folder(tmp_path / "m", tensors, model_type="model2vec")
    right = np.array([
        [float(rows[mapping[n] if "mapping" in tensors else n, j]) * float(weights[n] if "weights" in tensors else 1)
         for j in range(6)]
        for n in range(7)
    ])  # fmt: skip
    checkpoint = Checkpoint.open(path)
    learned = sum(tensor.numel() for name, tensor in tensors.items() if name != "mapping")
    assert ww.inspect(path).sizes.parameters == learned  # shared rows once
    assert_allclose(checkpoint.array("embeddings"), right, rtol=1e-6)
    assert_allclose(checkpoint.array("embeddings", [5, 0, 5]), right[[5, 0, 5]], rtol=1e-6)
    assert checkpoint.tensor("embeddings").is_floating_point()
    cosine = right[1] @ right[2] / np.linalg.norm(right[1]) / np.linalg.norm(right[2])
    assert token_similarity(path, ("cat", "sat")).cosine == pytest.approx(cosine, abs=1e-6)
    with pytest.raises(CheckpointError, match="model2vec"):
        resize_checkpoint(path, tmp_path / "out", vocab_size=9)


def test_model2vec_that_contradicts_itself(tmp_path: Path) -> None:
    rows = torch.randn(4, 6)
    for tensors, message in (
        ({"mapping": torch.zeros(7, dtype=torch.long), "weights": torch.ones(6)}, "mapping"),
        ({"weights": torch.ones(5)}, "mapping"), ({"mapping": torch.zeros(7)}, "mapping"),
        ({"mapping": torch.zeros(7, 1, dtype=torch.long)}, "mapping"),
        ({"mapping": torch.tensor([0, 1, 4])}, "outside"),
    ):  # fmt: skip
        path = folder(tmp_path / "m", {"embeddings": rows, **tensors}, model_type="model2vec")
        with pytest.raises(CheckpointError, match=message):
            Checkpoint.open(path).array("embeddings")


# Adapters of PEFT


def adapted(path: Path, tied: bool = False, kept: bool | str = False, **settings: Any) -> tuple[Any, Path]:
    """Save an adapter with random changes of a tiny Llama, and return the adapted model."""
    import peft
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"vocab_size": ROWS, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "pad_token_id": 0}
    config = LlamaConfig(**sizes, num_attention_heads=2, num_key_value_heads=2, tie_word_embeddings=tied)
    LlamaForCausalLM(config).save_pretrained(path / "base")
    kind = settings.pop("kind", "LoraConfig")
    model = peft.get_peft_model(LlamaForCausalLM.from_pretrained(path / "base"), getattr(peft, kind)(**settings))
    for name, parameter in model.named_parameters():
        if any(part in name for part in ("lora_", "trainable_tokens_delta", "modules_to_save")):
            parameter.data.normal_()
    model.save_pretrained(path / "adapter", save_embedding_layers=kept)
    (path / "base" / "tokenizer.json").write_bytes(tokenizer(WORDS))
    return model, path / "adapter"


BOTH = ["embed_tokens", "lm_head"]
LORA = {"target_modules": ["embed_tokens"], "r": 3, "lora_alpha": 5}


ADAPTERS: list[dict[str, Any]] = [
    {"target_modules": BOTH, "r": 4, "lora_alpha": 5, "use_rslora": True},
    {"target_modules": BOTH, "r": 4, "rank_pattern": {"embed_tokens": 2}, "alpha_pattern": {"^lm_head": 3}},
    {"target_modules": [*BOTH, "q_proj"], "r": 4, "alpha_pattern": {"model.embed_tokens": 3}},
    {"target_modules": ["q_proj"], "modules_to_save": BOTH},
    {"target_modules": ["q_proj"], "trainable_token_indices": {"embed_tokens": [5, 1], "lm_head": [2]}},
    {"kind": "TrainableTokensConfig", "token_indices": [6, 0, 3], "target_modules": BOTH},
    {"kind": "TrainableTokensConfig", "token_indices": [6, 0], "tied": True},
    {"target_modules": ["q_proj"], "trainable_token_indices": {"embed_tokens": [5, 1]}, "tied": True},
    {"ensure_weight_tying": True, "tied": True, **LORA},
    {"target_modules": ["q_proj"], "modules_to_save": BOTH[:1], "ensure_weight_tying": True, "tied": True},
]  # fmt: skip
FORMS = ("base named", "tables in it", "whole")


@pytest.mark.every_nth(3)
@pytest.mark.parametrize(
    ("settings", "form"),
    [*((one, "base beside it") for one in ADAPTERS), *((one, form) for one in ADAPTERS[::4] for form in FORMS)],
)
def test_adapters_are_merged_as_peft_merges_them(tmp_path: Path, settings: dict[str, Any], form: str) -> None:
    ties = settings.get("tied", False)
    kept = form == "tables in it" and not ties  # which PEFT itself fails to save
    model, path = adapted(tmp_path, kept=kept, **settings)
    base = tmp_path / "base"
    if form == "whole":  # the state of the whole model, with the name of the adapter in its names
        save_file(
            {name: one.contiguous().clone() for name, one in model.state_dict().items()},
            path / "adapter_model.safetensors",
        )
    if form == "base named":
        base = base.rename(tmp_path / "moved")
    checkpoint = ww.read(path, base=base if form == "base named" else None)
    assert checkpoint.base == base
    if "modules_to_save" not in settings:
        with pytest.raises(CheckpointError, match="merge_and_unload"):  # it is read, and not changed
            resize_checkpoint(path, tmp_path / "out", vocab_size=9)
    with torch.no_grad():
        rows = model.get_input_embeddings()(torch.arange(ROWS)).numpy()
        logits = model.get_output_embeddings()(torch.eye(8)).T.numpy()
    output = checkpoint.output_projection or checkpoint.token_table
    for name, own in ((checkpoint.token_table, rows), (output, logits)):
        assert_allclose(checkpoint.array(name), own, rtol=1e-5, atol=1e-6)
        assert_allclose(checkpoint.array(name, [6, 0, 5]), own[[6, 0, 5]], rtol=1e-5, atol=1e-6)
    before, found = Checkpoint.open(base).array("model.embed_tokens.weight"), difference(base, checkpoint)
    assert found.tokens.rows.equal == int((before == rows).all(1).sum()) < ROWS
    right = {
        f"{name}.weight": one.weight for name, one in model.merge_and_unload().named_modules() if hasattr(one, "weight")
    }
    assert checkpoint.tied is ties
    assert set(checkpoint.tensors) - {"lm_head.weight"} == set(right) - {"lm_head.weight"}
    for name in set(right) - {"model.embed_tokens.weight", "lm_head.weight"}:  # a tied one PEFT changes twice
        assert_allclose(checkpoint.array(name), right[name].detach(), rtol=1e-5, atol=1e-6)
    assert checkpoint.words[1:3] == ["cat", "sat"]


@pytest.mark.parametrize("settings", [LORA, {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"]}])
def test_a_tied_table_that_is_changed_for_reading_alone_is_no_output_projection(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    """PEFT computes logits by the rows of the base, until it merges."""
    model, path = adapted(tmp_path, tied=True, **settings)
    rows = Checkpoint.open(path).array("model.embed_tokens.weight")
    assert_allclose(rows, model.get_input_embeddings()(torch.arange(ROWS)).detach(), rtol=1e-5, atol=1e-6)
    logits = model.lm_head(torch.eye(8)).T.detach().numpy()
    assert np.abs(logits - rows).max() > 0.1
    assert ww.neighbors(path, "cat").rows == ROWS
    with pytest.raises(CheckpointError, match="is tied to"):
        ww.neighbors(path, "cat", table="output")


@pytest.mark.parametrize(
    ("settings", "change", "why"),
    [
        ({"use_dora": True}, {}, "lora_magnitude_vector"),
        ({"alpha_pattern": {"embed_tok.*": 3}}, {}, "pattern"),
        ({"kind": "LoHaConfig", "target_modules": ["lm_head"]}, {}, "hada_w1_a"),
        ({"r": 4}, None, "adapter_config"),
        ({"r": 4}, {"r": 5}, "its configuration"),
        *(
            ({"kind": "TrainableTokensConfig", "token_indices": [6, 0]}, {"token_indices": ids}, "its configuration")
            for ids in ([6, 7], [], [True, 0])
        ),
        *(({}, {"lora_alpha": alpha}, "its configuration") for alpha in (10**400, float("nan"))),
        ({"r": 1}, {"r": True}, "its configuration"),
        *(
            ({"target_modules": ["lm_head"], "r": 2, "init_lora_weights": start}, {}, f"'{start}', by which")
            for start in ("pissa_niter_4", "olora")
        ),
        ({"target_modules": ["lm_head"]}, {"init_lora_weights": "loftq"}, "'loftq'"),
    ],
)
def test_adapters_that_are_not_understood_are_refused(
    tmp_path: Path, settings: dict[str, Any], change: dict[str, Any] | None, why: str
) -> None:
    """They have a rule that is not known, or contradict their configuration, or have none."""
    _, path = adapted(tmp_path, **{"target_modules": ["embed_tokens"], **settings})
    file = path / "adapter_config.json"
    if change is None:
        file.unlink()
    else:
        file.write_text(json.dumps(json.loads(file.read_text()) | change))
    checkpoint = ww.read(path, base=tmp_path / "base")
    with pytest.raises(CheckpointError, match=why):
        checkpoint.array("lm_head.weight" if "lm_head" in str(settings) else "model.embed_tokens.weight")


@pytest.mark.parametrize(
    ("target", "start"),
    [("embed_tokens", "pissa"), ("embed_tokens", "OLoRA"), *(("lm_head", s) for s in ("mica", "Gaussian", False))],
)
def test_starts_of_lora_that_leave_the_base_are_read(tmp_path: Path, target: str, start: str | bool) -> None:
    model, path = adapted(tmp_path, target_modules=[target], r=2, init_lora_weights=start)
    checkpoint = ww.read(path)
    for name, module in (("model.embed_tokens", model.get_input_embeddings()), ("lm_head", model.lm_head)):
        rows = module(torch.arange(ROWS) if "embed" in name else torch.eye(8)).detach()
        assert_allclose(checkpoint.array(f"{name}.weight"), rows if "embed" in name else rows.T, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        {"target_modules": ["q_proj"]}, {"target_modules": ["lm_head"]},
        {"kind": "PromptTuningConfig", "task_type": "CAUSAL_LM", "num_virtual_tokens": 7},
    ],
)  # fmt: skip
def test_adapters_without_their_base_name_it(tmp_path: Path, settings: dict[str, Any]) -> None:
    _, path = adapted(tmp_path, **settings)
    base, moved = str(tmp_path / "base"), (tmp_path / "base").rename(tmp_path / "moved")
    for read in (lambda: ww.neighbors(path, "cat"), lambda: resize_checkpoint(path, tmp_path / "o", vocab_size=9),
                 lambda: difference(moved, path)):  # fmt: skip
        with pytest.raises(WhatWhereError, match=base):
            read()
    assert base in str(ww.inspect(path).norms)
    assert ww.read(path, base=moved).token_table == "model.embed_tokens.weight"


def test_what_is_no_base_is_refused(tmp_path: Path) -> None:
    """A different model, one of a different size, an adapter, and anything of a model that is no adapter."""
    _, path = adapted(tmp_path, **LORA)
    other = folder(tmp_path / "other", {"wte.weight": torch.ones(ROWS, 8)})
    with pytest.raises(CheckpointError, match="Pass the base on which it was trained"):
        ww.read(path, base=other)
    larger = folder(tmp_path / "larger", {f"{TABLE}.weight": torch.ones(ROWS + 1, 8)})
    with pytest.raises(CheckpointError, match="do not fit"):
        ww.neighbors(ww.read(path, base=larger), "cat")
    for adapter, base, message in ((path, path, "no adapter can be read on it"), (other, path, "not an adapter")):
        with pytest.raises(CheckpointError, match=message):
            ww.read(adapter, base=base)


def stating(path: Path, base: str, rows: int = 1, **settings: Any) -> Path:
    """Write an adapter of trained rows that states its base."""
    path.mkdir(parents=True)
    save_file({"base_model.model.wte.token_adapter.trainable_tokens_delta": torch.ones(rows, 8)},
              path / "adapter_model.safetensors")  # fmt: skip
    known = {"peft_type": "TRAINABLE_TOKENS", "token_indices": [1], "base_model_name_or_path": base, **settings}
    (path / "adapter_config.json").write_text(json.dumps(known))
    return path


@pytest.mark.parametrize(
    "base",
    ["empty", "pickles", "adapter", "model", "..", "x" * 300, "closed/base", "a\0b", "//host/base"],
)
def test_a_folder_found_unasked_that_is_no_base_leaves_the_adapter_alone(
    tmp_path: Path, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("empty", "pickles", "closed"):
        (tmp_path / name).mkdir()
    (tmp_path / "pickles" / "pytorch_model.bin").write_bytes(b"PK")
    stating(tmp_path / "adapter", "")
    folder(tmp_path / "model", {"other.weight": torch.ones(ROWS, 8)})
    asked: list[str] = []
    stat = os.stat

    def refused(path: Any, **settings: Any) -> os.stat_result:
        asked.append(str(path))
        if "closed" in str(path):
            raise PermissionError(13, "Permission denied")
        return stat(path, **settings)

    own = stating(tmp_path / "own", base)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "stat", refused)
    checkpoint = Checkpoint.open(own)
    assert checkpoint.base is None
    assert not any("host" in each for each in asked)
    if base in ("empty", "model"):
        with pytest.raises(CheckpointError):
            Checkpoint.open(own, base=tmp_path / base)


def test_the_cache_comes_before_a_folder_of_the_same_last_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache has two revisions, of which an adapter may name one."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    cache = tmp_path / "hub" / "models--someone--base"
    (cache / "refs").mkdir(parents=True)
    (cache / "snapshots").mkdir()
    for revision, commit in (("main", "a" * 40), ("v2", "b" * 40)):
        (cache / "refs" / revision).write_text(commit)
        folder(cache / "snapshots" / commit, {"wte.weight": torch.ones(ROWS, 8)})
    folder(tmp_path / "base", {"wte.weight": torch.ones(ROWS, 8)})
    for name, settings, right in (
        ("one", {}, cache / "snapshots" / ("a" * 40)), ("two", {"revision": "v2"}, cache / "snapshots" / ("b" * 40)),
        ("three", {"revision": "v3"}, tmp_path / "base"),
    ):  # fmt: skip
        assert Checkpoint.open(stating(tmp_path / name, "someone/base", **settings)).base == right
