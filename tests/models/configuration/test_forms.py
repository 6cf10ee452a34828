"""Configurations in every form: nested and flat, whole files; forms of published files are in test_published."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import whatwhere as ww

from ...systems import unix
from ..tiny import config_of
from .small import GPT2, LLAMA, SU, YARN, of

# Two forms of one thing


SAME = {
    "rope_scaling and rope_parameters": (
        of("llama", rope_theta=5e5, rope_scaling={"type": "dynamic", "factor": 2.0}),
        of("llama", rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 5e5}),
    ),
    "a factor, and the lengths whose quotient it is": (
        of("llama", rope_scaling={**YARN, "factor": None}), of("llama", rope_scaling=YARN),
    ),
    "LongRoPE, likewise": (of("llama", rope_scaling={**SU, "factor": None}), of("llama", rope_scaling=SU)),
    "4096.0, as some tools write it": (of("llama", max_position_embeddings=4096.0), of("llama")),
    "null and nothing": (of("llama", rope_scaling=None, head_dim=None, pad_token_id=None), of("llama")),
    "rotary_dim of MiniMax": (
        of("minimax_m2", head_dim=16, rotary_dim=8),
        of("minimax_m2", head_dim=16, rope_parameters={"partial_rotary_factor": 0.5}),
    ),
    "attention, as it was called": (
        of("qwen3_next", head_dim=16, layer_types=["linear_attention", "attention"] * 2),
        of("qwen3_next", head_dim=16, full_attention_interval=2),
    ),
    "DeBERTa's terms as words": (
        of("deberta", relative_attention=True, pos_att_type="P2C|c2p"),
        of("deberta", relative_attention=True, pos_att_type=["c2p", "p2c"]),
    ),
    "no padding, as early Llama files say it": (of("llama", pad_token_id=-1), of("llama")),
}  # fmt: skip


@pytest.mark.parametrize("case", SAME)
def test_two_forms_of_one_thing(case: str) -> None:
    older, newer = (ww.from_huggingface(config) for config in SAME[case])
    if case.startswith("no padding"):
        assert older.notes == ("pad_token_id=-1 is read as no padding token",)
        assert older.padding_idx is newer.padding_idx is None
        return
    assert older == newer


# Files, objects, models of text and images


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"\xff\xfe", "is not JSON"), (b"[1]", "contains a list"), (b" " * 10_000_001, "10,000,001 bytes"),
     (b'{"a":' * 100_000, "is not JSON: (maximum recursion depth|Stack overflow)")],
)  # fmt: skip
def test_broken_files(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(ww.errors.CheckpointError, match=message):
        ww.read(tmp_path)


@unix
def test_a_pipe_without_a_writer_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    for read in (ww.read, ww.from_huggingface):
        with pytest.raises(ww.errors.CheckpointError, match="is not a regular file"):
            read(tmp_path)


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(ww.errors.CheckpointError, match="holds no weights that are read"):
        ww.read(tmp_path)
    with pytest.raises(ww.errors.CheckpointError, match=r"config\.json cannot be read: No such file"):
        ww.from_huggingface(tmp_path)
    with pytest.raises(ww.errors.CheckpointError, match="cannot be read"):
        ww.read("meta-llama/Llama-3.1-8B")


def test_text_with_images() -> None:
    text = {key: value for key, value in LLAMA.items() if key != "model_type"}
    outer = {"model_type": "llava", "tie_word_embeddings": True, "vision_config": {"rope_theta": 3.0}}
    description = ww.from_huggingface({**outer, "text_config": LLAMA})
    assert description.model_type == "llama"
    assert description.tied
    assert "text_config.hidden_size" in description.used
    inside = SimpleNamespace(to_dict=lambda: LLAMA)
    assert ww.from_huggingface({**outer, "text_config": inside}) == description
    gemma = ww.from_huggingface({"model_type": "gemma3", "text_config": {**text, "head_dim": 16}})
    assert gemma == ww.from_huggingface(of("gemma3_text", head_dim=16))
    shorter = {key: value for key, value in LLAMA.items() if key != "max_position_embeddings"}
    by_default = ww.from_huggingface({**outer, "text_config": shorter, "max_position_embeddings": 2048})
    assert by_default == ww.from_huggingface({**outer, "text_config": shorter})  # 2,048 is that of Llama
    with pytest.raises(ww.errors.SettingError, match="max_position_embeddings is 4096 beside text_config"):
        ww.from_huggingface({**outer, "text_config": shorter, "max_position_embeddings": 4096})


def test_parts() -> None:
    config = config_of("t5", num_layers=2, num_decoder_layers=3)
    decoder, encoder = ww.from_huggingface(config), ww.from_huggingface(config, part="encoder")
    assert (decoder.part, decoder.layers) == ("decoder", 3)
    assert (encoder.part, encoder.layers) == ("encoder", 2)
    bart = config_of("bart", encoder_attention_heads=2)
    assert ww.from_huggingface(bart, part="encoder").head_dim == 32


def test_a_type_that_is_like_another() -> None:
    config = {**LLAMA, "model_type": "my_llama", "rope_theta": 5e5}
    assert ww.from_huggingface(config, like="llama") == ww.from_huggingface({**config, "model_type": "llama"})
    assert ww.from_huggingface({**config, "use_rope": True}, like="llama").num_heads == 4  # it repeats what was read
    bart = config_of("bart", encoder_layers=2).to_dict()
    names = ("d_model", "decoder_layers", "decoder_attention_heads", "vocab_size", "extra_pos_embeddings")
    names += ("encoder_layers", "encoder_attention_heads", "max_position_embeddings")
    sizes = {name: bart[name] for name in names if name in bart}
    assert ww.from_huggingface({**sizes, "model_type": "bartish"}, like="bart").layers == bart["decoder_layers"]


def test_jina_embeddings_v3_under_another_name() -> None:
    """Its authors' file has the type of XLM-RoBERTa, and rotates."""
    config = {"model_type": "xlm-roberta", "vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 2,
              "num_attention_heads": 4, "position_embedding_type": "rotary", "rotary_emb_base": 20_000.0,
              "max_position_embeddings": 8194, "type_vocab_size": 1, "pad_token_id": 1}  # fmt: skip
    with pytest.raises(ww.errors.SettingError, match="'jina_embeddings_v3': write this as the model_type"):
        ww.from_huggingface(config)
    plan = ww.from_huggingface({**config, "model_type": "jina_embeddings_v3"}).query_key[0]
    assert plan is not None
    assert plan.settings["theta"] == 20_000.0


# What was read


def test_used_and_assumed() -> None:
    description = ww.from_huggingface(of("llama", rope_scaling={"type": "linear", "factor": 2.0}, eos_token_id=2))
    assert description.used == (
        "model_type", "hidden_size", "vocab_size", "num_hidden_layers", "max_position_embeddings",
        "num_attention_heads", "num_key_value_heads", "rope_scaling", "rope_scaling.type", "rope_scaling.factor",
    )  # fmt: skip
    assert "rope_theta=10000.0" in description.assumed
    assert "tie_word_embeddings=False" in description.assumed


def test_a_projection_between() -> None:
    """OPT 350M looks up 32 features, projects them, and then adds positions; ALBERT projects after both."""
    opt = ww.from_huggingface(config_of("opt", word_embed_proj_dim=32))
    assert (opt.token_dim, opt.dim) == (32, 64)
    assert "a projection from 32 to 64 features" in opt.notes[0]
    with pytest.raises(ww.errors.SettingError, match="a projection from 32 to 64 features is between"):
        opt.input_layer()
    albert = ww.from_huggingface(config_of("albert", embedding_size=32))
    assert albert.input_layer()(torch.tensor([[4, 5]])).shape == (1, 2, 32)


def test_softmax_scales_by_layer() -> None:
    by_layer = ww.from_huggingface({**GPT2, "scale_attn_by_inverse_layer_idx": True})
    assert [where.scale for where in by_layer.wheres()] == [None, 0.125, 0.25 / 3, 0.0625]
    with pytest.raises(ww.errors.SettingError, match="different softmax scales"):
        by_layer.scale  # noqa: B018


def test_tables_are_built_on_demand() -> None:
    """A description of a table of a petabyte costs nothing; each build draws its own."""
    description = ww.from_huggingface({**GPT2, "n_positions": 10**12})
    assert description.input.settings["max_length"] == 10**12
    wheres = description.wheres(device="meta", dtype=torch.bfloat16)
    assert wheres[0].input.weight.shape == (10**12, 64)
    assert wheres[0].input.weight.dtype == torch.bfloat16
    assert [where.input for where in wheres[1:]] == [None] * 3
    small = ww.from_huggingface(GPT2)
    first, second = small.wheres(), small.wheres()
    assert first[0].input is not second[0].input
    assert small.input_layer(first[0]).where.input is first[0].input


def test_transformers_is_not_needed() -> None:
    """In a process where it cannot be imported, configurations are read, and models patched."""
    program = f"""
import sys
sys.modules["transformers"] = None
import torch, whatwhere as ww
ww.read({LLAMA!r})
model = torch.nn.Module()
model.config, model.wte, model.wpe = {GPT2!r}, torch.nn.Embedding(100, 64), torch.nn.Embedding(1024, 64)
assert ww.patch(model).replaced == ["wte", "wpe"]
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
