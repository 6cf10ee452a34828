"""The positional encoding of a model's files, with their learned tables, beside the tables themselves."""

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from torch import Tensor, nn
from transformers.models.inkling import modeling_inkling as inkling
from transformers.models.inkling2 import modeling_inkling2 as inkling2

import whatwhere as ww
from whatwhere.analysis.rotary import rotary
from whatwhere.analysis.subject import Absent, Subject
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
    """Write a small model."""
    if config is not None:
        (path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(tensors, path / "model.safetensors")
    return path


def random(*shape: int) -> np.ndarray:
    """Return a random tensor."""
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
    for tensors in (tokens, tokens | {BIAS: random(7, 2)}):
        notes = ww.load_where(folder(tmp_path, T5, tensors)).notes
        assert any("the learned numbers of T5 are not in the file" in note for note in notes)


def test_sinks_have_the_numbers_of_the_file_or_a_note(tmp_path: Path) -> None:
    """Of the first layer, which has a window too; by the names of transformers and of llama.cpp."""
    tokens, sinks = {"model.embed_tokens.weight": random(9, 8)}, random(2)
    config = {
        "model_type": "gpt_oss", "vocab_size": 9, "hidden_size": 8, "num_hidden_layers": 11, "num_attention_heads": 2,
        "num_key_value_heads": 1, "head_dim": 4, "sliding_window": 3,
    }  # fmt: skip
    for name in ("model.layers.0.self_attn.sinks", "blk.0.attn_sinks.weight"):
        other = {"model.layers.10.self_attn.sinks": random(2) + 5}
        loaded = ww.load_where(folder(tmp_path, config, tokens | other | {name: sinks}))
        assert loaded.where.sink is not None
        np.testing.assert_array_equal(loaded.where.sink.weight.detach(), sinks)
        assert loaded.where.window == ww.Window(3)
        assert not any("sinks" in note for note in loaded.notes)
    assert any(
        "sinks of layer 0 are not in the file" in n for n in ww.load_where(folder(tmp_path, config, tokens)).notes
    )
    wrong = folder(tmp_path, config, tokens | {"model.layers.0.self_attn.sinks": random(3)})
    with pytest.raises(CheckpointError, match=r"has the shape \(3,\), but the configuration needs \(2,\)"):
        ww.load_where(wrong)


INKLING = {"inkling2_text": inkling2, "inkling_text": inkling}
PUBLISHED = (
    ("model.", "model.llm."), ("self_attn.", "attn."), ("embed_tokens.weight", "embed.weight"), ("r_proj", "wr_du"),
)  # fmt: skip
"""Parts of names of tensors of transformers -> those of the files of Thinking Machines."""


@pytest.fixture(params=INKLING)
def of_inkling(request, monkeypatch: pytest.MonkeyPatch) -> tuple[nn.Module, list[dict[str, Any]]]:
    """Return a tiny Inkling, and what its attentions got and computed, without the sinks that tokens determine."""
    source, seen = INKLING[request.param], []
    original = source.eager_attention_forward

    def watched(module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, **given: Any) -> Any:
        alone = {name: value for name, value in given.items() if name in ("scaling", "position_bias")}
        seen[-1] |= {"q": q, "k": k, "v": v, "y": original(module, q, k, v, mask, **alone)[0].transpose(1, 2)}
        return original(module, q, k, v, mask, **given)

    monkeypatch.setattr(source, "eager_attention_forward", watched)
    torch.manual_seed(1)
    model = model_of(config_of(request.param))
    for layer in model.model.layers:
        for weight in layer.self_attn.parameters():
            nn.init.normal_(weight, std=0.5)
        layer.self_attn.register_forward_pre_hook(
            lambda _, args, given: seen.append({"x": given["hidden_states"]}), with_kwargs=True
        )
        norm = layer.self_attn.q_norm if request.param == "inkling_text" else layer.self_attn.q_l2_clip
        norm.register_forward_hook(lambda _, args, out: seen[-1].update(normed=out.transpose(1, 2)))
    with torch.no_grad():
        model(torch.arange(13)[None] + 4)
    return model, seen


@pytest.mark.parametrize("published", [False, True])
def test_the_profiles_of_inkling_are_those_of_the_file(tmp_path: Path, of_inkling: Any, published: bool) -> None:
    """Its first layer computes what the model does; of a draft of later tokens (mtp) nothing is taken."""
    model, seen = of_inkling
    tensors = {name: tensor.detach().numpy() for name, tensor in model.state_dict().items()}
    for one, other in PUBLISHED if published else ():
        tensors = {name.replace(one, other): tensor for name, tensor in tensors.items()}
    profiles = "layers.0.attn.rel_logits_proj.proj" if published else "layers.0.self_attn.rel_logits_proj.proj"
    tensors[f"model.mtp.{profiles}"] = random(4, 5)
    loaded = ww.load_where(folder(tmp_path, model.config.to_dict(), tensors))
    require_attention(loaded.where, seen[0])
    assert not any("random" in note for note in loaded.notes)
    missing = {name: tensor for name, tensor in tensors.items() if "rel_logits_proj" not in name}
    notes = ww.load_where(folder(tmp_path, model.config.to_dict(), missing)).notes
    assert "`profiles` of Inkling in layer 0 is not in the file under a known name: random" in notes


def test_layers_of_inkling_compute_what_its_modules_do(of_inkling: Any) -> None:
    """With and without a window, of different heads; the temperature multiplies queries and bias."""
    model, seen = of_inkling
    for layer, where in enumerate(ww.from_huggingface(model.config).wheres()):
        own = model.model.layers[layer].self_attn
        where.score.load_state_dict(
            {"weight": own.r_proj.weight, "profiles": own.rel_logits_proj.proj}
            | ({"gain": own.rel_l2_clip.scale} if hasattr(own, "rel_l2_clip") else {})
        )
        require_attention(where, seen[layer])
    assert {where.window is None for where in ww.from_huggingface(model.config).wheres()} == {True, False}


def require_attention(where: ww.Where, theirs: dict[str, Any]) -> None:
    """Check what a layer computes of the queries before their temperature."""
    with torch.no_grad():
        here = where.at(13)
        q, k = here.query_key(theirs["normed"], theirs["k"])
        torch.testing.assert_close(q, theirs["q"], rtol=1e-6, atol=1e-6)
        y = here.attention(q, k, theirs["v"], gates=here.gates(theirs["x"]))
        torch.testing.assert_close(y, theirs["y"], rtol=0, atol=1e-5)


def test_the_frequencies_and_factors_of_mistral_large_4_are_those_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scores of its first layer, and the report of its frequencies; without the tensors both say so."""
    source = import_module("transformers.models.mistral_large4.modeling_mistral_large4")
    model, seen = model_of(config_of("mistral_large4_text")), {}
    attention = model.layers[0].self_attn
    with torch.no_grad():
        for tensor in (model.rotary_emb.alpha, *attention.softmax_scaling.parameters()):
            tensor.normal_(std=0.3)
    original = source.eager_attention_forward

    def watched(module: nn.Module, q: Tensor, k: Tensor, *args: Any, **given: Any) -> Any:
        seen.setdefault("scores", q @ k.mT)
        seen.setdefault("key", k)
        return original(module, q, k, *args, **given)

    monkeypatch.setattr(source, "eager_attention_forward", watched)
    attention.q_proj.register_forward_hook(lambda _, args, out: seen.__setitem__("query", out))
    attention.kv_a_proj_with_mqa.register_forward_hook(lambda _, args, out: seen.__setitem__("latent", out))
    with torch.no_grad():
        model(torch.arange(13)[None] + 4)
    tensors = {name: tensor.detach().numpy() for name, tensor in model.state_dict().items()}
    path = folder(tmp_path, model.config.to_dict(), tensors)
    loaded = ww.load_where(path)
    query = seen["query"].unflatten(-1, (4, -1)).transpose(1, 2)
    rotated = seen["latent"][:, None, :, -8:].expand(-1, 4, -1, -1)
    with torch.no_grad():
        q, k = loaded.where.at(13).query_key(query, torch.cat([seen["key"][..., :-8], rotated], dim=-1))
    torch.testing.assert_close(q @ k.mT, seen["scores"], rtol=0, atol=1e-5 * float(seen["scores"].abs().max()))
    assert not any("not in the file" in note for note in loaded.notes)
    (group,) = rotary(Subject(ww.Checkpoint.open(path), 0, lambda _: None)).groups
    exact = model.rotary_emb.inv_freq * model.rotary_emb.alpha.exp()
    np.testing.assert_allclose(2 * np.pi / group.wavelengths, exact.numpy(), rtol=1e-6)
    bare = {name: tensor for name, tensor in tensors.items() if "alpha" not in name and "softmax" not in name}
    notes = ww.load_where(folder(tmp_path, model.config.to_dict(), bare)).notes
    assert sum("not in the file" in note for note in notes) == 2
    with pytest.raises(Absent, match="its frequencies are weights"):
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
    for (where, _), layer in zip(
        attention_of_layers(ww.Checkpoint.open(tmp_path)), model.transformer.layer, strict=True
    ):
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
        SettingError, match=r"has no run 'rotary-0': it is no comparison with trained models\.\nName one"
    ):
        ww.load_where(path / "model.safetensors", run="rotary-0")
    names = {"model.decoder.embed_tokens.weight": random(9, 8), "model.decoder.embed_positions.weight": random(2, 8)}
    with pytest.raises(CheckpointError, match=r"shape \(2, 8\), but \(positions, dim\) is needed"):
        ww.load_where(folder(tmp_path, OPT, names))
