"""The positional encoding of a model's files, with their learned tables, beside the tables themselves."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

import whatwhere as ww
from whatwhere.analysis.rotary import rotary
from whatwhere.analysis.subject import NoData, Subject
from whatwhere.errors import CheckpointError, SettingError
from whatwhere.models.configuration.model_types import MODEL_TYPES
from whatwhere.models.load_where import attention_of_layers
from whatwhere.models.probe.tiny import tiny_config, tiny_model

from .tiny import config_of, model_of

OPT = {
    "model_type": "opt", "vocab_size": 9, "hidden_size": 8, "word_embed_proj_dim": 8, "num_hidden_layers": 1,
    "num_attention_heads": 2, "max_position_embeddings": 4, "ffn_dim": 8,
}  # fmt: skip
T5 = {
    "model_type": "t5", "vocab_size": 9, "d_model": 8, "d_kv": 4, "num_heads": 2, "num_layers": 2,
    "relative_attention_num_buckets": 32, "relative_attention_max_distance": 128,
}  # fmt: skip
BIAS = "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"


def folder(path: Path, config: dict[str, Any] | None, tensors: dict[str, np.ndarray]) -> Path:
    if config is not None:
        (path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(tensors, path / "model.safetensors")
    return path


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(4).standard_normal(shape).astype(np.float32)


def test_a_learned_table_begins_at_the_offset_of_the_model(tmp_path: Path) -> None:
    table = random(6, 8)
    names = {"model.decoder.embed_tokens.weight": random(9, 8), "model.decoder.embed_positions.weight": table}
    loaded = ww.load_where(folder(tmp_path, OPT, names))
    assert loaded.where.input is not None
    np.testing.assert_array_equal(loaded.where.input(ww.positions(4))[0].detach(), table[2:])
    assert (loaded.dim, loaded.num_heads, loaded.head_dim, loaded.max_length) == (8, 2, 4, 4)


def test_a_bias_has_the_table_of_the_file_or_a_note(tmp_path: Path) -> None:
    tokens, table = {"shared.weight": random(9, 8)}, random(32, 2)
    loaded = ww.load_where(ww.Checkpoint.open(folder(tmp_path, T5, tokens | {BIAS: table})))
    bias: Any = loaded.where.score
    np.testing.assert_array_equal(bias.weight.detach(), table)
    assert not any("random" in note for note in loaded.notes)
    assert "shown is layer 0 of 2, counted from 0" in loaded.notes
    notes = ww.load_where(folder(tmp_path, T5, tokens)).notes
    assert "`weight` of T5 in layer 0 is not in the file under a known name: as before training" in notes
    with pytest.raises(CheckpointError, match=r"has the shape \(7, 2\), but the configuration needs \(32, 2\)"):
        ww.load_where(folder(tmp_path, T5, tokens | {BIAS: random(7, 2)}))


def test_sinks_have_the_numbers_of_the_file_or_a_note(tmp_path: Path) -> None:
    """By the names of transformers and of llama.cpp."""
    tokens, sinks = {"model.embed_tokens.weight": random(9, 8)}, random(2)
    config = {
        "model_type": "gpt_oss", "vocab_size": 9, "hidden_size": 8, "num_hidden_layers": 11, "num_attention_heads": 2,
        "num_key_value_heads": 1, "head_dim": 4,
    }  # fmt: skip
    for name in ("model.layers.0.self_attn.sinks", "blk.0.attn_sinks.weight"):
        loaded = ww.load_where(folder(tmp_path, config, tokens | {name: sinks, name.replace("0", "10"): random(2) + 5}))
        assert loaded.where.sink is not None
        np.testing.assert_array_equal(loaded.where.sink.weight.detach(), sinks)
        assert not any("sinks" in note for note in loaded.notes)
    missing = "`weight` of Sink in layer 0 is not in the file under a known name: 0"
    assert missing in ww.load_where(folder(tmp_path, config, tokens)).notes


PUBLISHED = (
    ("model.", "model.llm."), ("self_attn.", "attn."), ("embed_tokens.weight", "embed.weight"), ("r_proj", "wr_du"),
)  # fmt: skip
"""Parts of names of tensors of transformers -> those of the files of Thinking Machines."""


@pytest.mark.parametrize("published", [False, True])
@pytest.mark.parametrize("model_type", ["inkling2_text", "inkling_text"])
def test_the_profiles_of_inkling_are_those_of_the_file(model_type: str, tmp_path: Path, published: bool) -> None:
    """Of a draft of later tokens (mtp) nothing is taken; what they compute: tests/oracles/test_transformers_inkling."""
    model: Any = model_of(config_of(model_type))
    tensors = {name: tensor.detach().numpy() for name, tensor in model.state_dict().items()}
    for one, other in PUBLISHED if published else ():
        tensors = {name.replace(one, other): tensor for name, tensor in tensors.items()}
    profiles = "layers.0.attn.rel_logits_proj.proj" if published else "layers.0.self_attn.rel_logits_proj.proj"
    tensors[f"model.mtp.{profiles}"] = random(4, 5)
    loaded, own = ww.load_where(folder(tmp_path, model.config.to_dict(), tensors)), model.model.layers[0].self_attn
    scheme: Any = loaded.where.score
    assert torch.equal(scheme.weight, own.r_proj.weight)
    assert torch.equal(scheme.profiles, own.rel_logits_proj.proj)
    assert model_type == "inkling_text" or torch.equal(scheme.gain, own.rel_l2_clip.scale)
    assert not any("random" in note for note in loaded.notes)
    missing = {name: tensor for name, tensor in tensors.items() if "rel_logits_proj" not in name}
    notes = ww.load_where(folder(tmp_path, model.config.to_dict(), missing)).notes
    assert "`profiles` of Inkling in layer 0 is not in the file under a known name: as before training" in notes


def test_the_frequencies_and_factors_of_mistral_large_4_are_those_of_the_file(tmp_path: Path) -> None:
    """Also in the report of its frequencies; without the tensors both say so."""
    model: Any = model_of(config_of("mistral_large4_text"))
    factors = model.layers[0].self_attn.softmax_scaling
    with torch.no_grad():
        for tensor in (model.rotary_emb.alpha, *factors.parameters()):
            tensor.normal_(std=0.3)
    tensors = {name: tensor.detach().numpy() for name, tensor in model.state_dict().items()}
    path = folder(tmp_path, model.config.to_dict(), tensors)
    loaded = ww.load_where(path)
    scheme: Any = loaded.where.query_key
    assert torch.equal(scheme.then.alpha, model.rotary_emb.alpha)
    assert torch.equal(scheme.weight.flatten(), factors.scale.flatten())
    assert torch.equal(scheme.bias.flatten(), factors.bias.flatten())
    assert not any("not in the file" in note for note in loaded.notes)
    (group,) = rotary(Subject(ww.Checkpoint.open(path), 0, lambda _: None)).groups
    exact = model.rotary_emb.inv_freq * model.rotary_emb.alpha.exp()
    np.testing.assert_allclose(2 * np.pi / group.wavelengths, exact.numpy(), rtol=1e-6)
    bare = {name: tensor for name, tensor in tensors.items() if "alpha" not in name and "softmax" not in name}
    notes = ww.load_where(folder(tmp_path, model.config.to_dict(), bare)).notes
    assert sum("not in the file" in note for note in notes) == 3
    with pytest.raises(NoData, match="its frequencies are weights"):
        rotary(Subject(ww.Checkpoint.open(path), 0, lambda _: None))


def missing_of(model_type: str, path: Path) -> list[str]:
    """Return what a model of a type lacks after transformers has saved it, under the names of published files."""
    tiny_model(tiny_config(model_type)).save_pretrained(path)
    notes = [
        *ww.load_where(path).notes,
        *(note for _, layer in attention_of_layers(ww.Checkpoint.open(path)) for note in layer),
    ]
    return [note for note in notes if "not in the file" in note or "no table of it" in note]


@pytest.mark.parametrize("model_type", ["cohere_asr", "xlnet"])
def test_learned_numbers_are_found_under_published_names(model_type: str, tmp_path: Path) -> None:
    assert missing_of(model_type, tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("model_type", [name for name, kind in MODEL_TYPES.items() if kind.has_attention])
def test_learned_numbers_of_all_types_are_found_under_published_names(model_type: str, tmp_path: Path) -> None:
    assert missing_of(model_type, tmp_path) == []


def test_the_bias_of_xlnet_is_that_of_the_file(tmp_path: Path) -> None:
    model = model_of(config_of("xlnet"))
    model.save_pretrained(tmp_path)
    layers = attention_of_layers(ww.Checkpoint.open(tmp_path))
    for (where, _), layer in zip(layers, model.transformer.layer, strict=True):
        bias: Any = where.score
        torch.testing.assert_close(bias.u, layer.rel_attn.r_w_bias)
        torch.testing.assert_close(bias.v, layer.rel_attn.r_r_bias)
        torch.testing.assert_close(bias.weight, layer.rel_attn.r.permute(1, 2, 0))


def test_a_table_without_a_configuration_is_loaded_and_noted(tmp_path: Path) -> None:
    table = random(5, 4)
    path = folder(tmp_path, None, {"wte.weight": random(9, 4), "wpe.weight": table})
    loaded = ww.load_where(path / "model.safetensors")
    assert loaded.where.input is not None
    np.testing.assert_array_equal(loaded.where.input(ww.positions(5))[0].detach(), table)
    assert loaded.notes == ("there is no configuration: by its name, the table is added to the token vectors",)
    refused = ww.load_where(
        folder(tmp_path, {"model_type": "gpt2", "n_embd": "wide"}, {"wte.weight": random(9, 4), "wpe.weight": table})
    )
    assert refused.notes[0].startswith("the configuration is not understood: ")


def test_what_cannot_be_loaded_is_refused(tmp_path: Path) -> None:
    path = folder(tmp_path, None, {"wte.weight": random(9, 4)})
    with pytest.raises(
        SettingError, match=r"positional encoding of .* is not known: there is no configuration\.\nChoose"
    ):
        ww.load_where(path / "model.safetensors")
    with pytest.raises(
        SettingError, match=r"has no run 'rotary-0': it is not a comparison with trained models\.\nName one"
    ):
        ww.load_where(path / "model.safetensors", run="rotary-0")
    names = {"model.decoder.embed_tokens.weight": random(9, 8), "model.decoder.embed_positions.weight": random(2, 8)}
    with pytest.raises(CheckpointError, match=r"shape \(2, 8\), but \(positions, dim\) is needed"):
        ww.load_where(folder(tmp_path, OPT, names))
