"""Every model type that can be read: what is read is what transformers' own model does, built tiny and at random."""

import json
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.roformer.modeling_roformer import RoFormerSelfAttention

import whatwhere as ww
from whatwhere.models.configuration.description import Description
from whatwhere.models.configuration.model_types import MODEL_TYPES, find_model_type

from .checkpoint.forms import VOCABULARY
from .inside import Seen, entering, looking_into
from .tiny import config_of, inputs_of, model_of, tables_of

TOKENS = 9
ROTATED = {"rope", "falcon", "nested_theta", "rotary_dim", "theta_by_layer"}
TURNING = [name for name, kind in MODEL_TYPES.items() if ROTATED & {rule.name for rule in kind.positions}]
# What a default configuration of transformers holds that cannot be read, and what is put in its place.
UNREADABLE: dict[str, dict[str, Any]] = {
    "esm": {"vocab_size": 33, "pad_token_id": 1},  # theirs has no tokens
    "glm4_moe": {"head_dim": 128},  # 4096 features do not make 96 heads; theirs are cut to 42
    "cohere_compass_text": {"rope_parameters": {"full_attention": {"rope_theta": 10_000.0}}},  # theirs fail: no set
    "glm4v_moe_text": {"head_dim": 128, "rope_parameters": {"partial_rotary_factor": 0.5}},  # as that of glm4_moe
    "glm4v_text": {"rope_parameters": {"mrope_section": [16, 24, 24]}},  # theirs fail: 32 pairs for 64
    "glm_ocr_text": {"rope_parameters": {"mrope_section": [8, 12, 12]}},
    "qwen3_omni_moe_text": {"head_dim": 128},  # 2048 features do not make 28 heads; theirs, of 73, do not make pairs
    # theirs rotate whole heads, in spite of their rotary_dim
    "minimax_m3_vl_text": {"rope_parameters": {"rope_theta": 5e6, "partial_rotary_factor": 0.5}},
}
MULTIPLIED = {"longcat_flash": 2.0}  # queries are multiplied by sqrt(64 / 16), as they come from 16 of 64 features
HYPER_CONNECTIONS = ("glm5_next_text", "hy_v4", "qwen4_exp_text")  # several streams, the first of which is compared
MORE_TABLES = ("ibert", "layoutlm", "longformer", "mobilebert", "tapas")
"""Further tables are added, tokens are joined with their neighbors, quantized, or padded to whole windows."""
PRESCALED = ("esm", "kosmos_2_5_text_model", "opt", "whisper")  # queries are scaled before attention is called


@cache
def built(model_type: str) -> tuple[PreTrainedConfig, nn.Module, Description]:
    """Build a tiny model once, and read its configuration."""
    torch.manual_seed(0)
    config = config_of(model_type)
    model = model_of(config)
    if model_type == "zaya":  # whose queries and keys are 0 at first
        for name, parameter in model.named_parameters():
            if "attn" in name and not parameter.any():
                nn.init.normal_(parameter)
    return config, model, ww.from_huggingface(config)


@cache
def ran(model_type: str) -> Seen:
    """Run a model on some tokens, and return what was recorded inside it."""
    _, model, _ = built(model_type)
    with torch.no_grad(), looking_into(model) as seen:
        model(**inputs_of(model, ids()))
    return seen


def ids() -> Tensor:
    """Return two sequences without special tokens."""
    return torch.arange(2 * TOKENS).reshape(2, TOKENS) % (VOCABULARY - 5) + 4


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_absent_keys_have_the_defaults_of_transformers(model_type: str) -> None:
    full = {**CONFIG_MAPPING[model_type]().to_dict(), **UNREADABLE.get(model_type, {})}
    family = find_model_type(model_type)
    names = family.names_of("decoder" if family.parts else None)
    needed = [names[word][0] for word in ("vocab_size", "dim", "layers", "num_heads") if word in names]
    needed += [*(family.head_dim_parts or ()), *UNREADABLE.get(model_type, {})]
    bare = {"model_type": model_type, **{key: full[key] for key in needed}}
    assert ww.from_huggingface(bare) == ww.from_huggingface(full)


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_a_saved_file_has_the_same_description(model_type: str) -> None:
    """What transformers writes leaves some keys out."""
    config, _, description = built(model_type)
    assert ww.from_huggingface(json.loads(config.to_json_string())) == description


@pytest.mark.parametrize("model_type", TURNING)
def test_queries_and_keys_rotate_as_those_of_transformers(model_type: str) -> None:
    """Compared as scores: latent attention and others leave the features in another order after turning."""
    _, _, description = built(model_type)
    if model_type == "roformer":
        return  # below: it has no function of its own that turns
    seen, wheres = ran(model_type), description.wheres()
    if model_type == "hrm_text":  # each of its two stacks is applied several times
        assert len(seen.before) == description.layers // 4
        wheres = wheres[: len(seen.before)]
        description = replace(description, query_key=description.query_key[: len(seen.before)])
    if model_type == "longcat_flash":  # each layer of theirs has two attentions
        wheres, description = wheres[::2], replace(description, query_key=description.query_key[::2])
    assert {layer for layer, plan in enumerate(description.query_key) if plan is not None} == set(seen.before)
    last = -2 if model_type == "qwen4_exp_text" else 0  # its indexer rotates first
    for layer, before in seen.before.items():
        scheme = wheres[layer].query_key
        if isinstance(scheme, ww.QueryTemperature | ww.SSMax):  # which follow the rotation
            scheme = scheme.then
        assert scheme is not None
        # some models hand over only the features that turn, which may be the last ones of a head
        start = 0 if before[last].shape[-1] == scheme.head_dim else getattr(scheme, "rotary_start", 0)
        q, k = (F.pad(x, (start, scheme.head_dim - start - x.shape[-1])) for x in before[last:][:2])
        groups = q.shape[1] // k.shape[1]
        ours, theirs = (
            a @ b.repeat_interleave(groups, 1).mT
            for a, b in (scheme(q, k, ww.positions(TOKENS)), seen.after[layer][last:][:2])
        )
        size = theirs.abs().max()
        assert (q @ k.repeat_interleave(groups, 1).mT - theirs).abs().max() > 1e-3 * size  # there is something to see
        torch.testing.assert_close(ours, theirs, rtol=0, atol=float(1e-5 * size))


def test_roformer_rotates_as_that_of_transformers() -> None:
    _, model, description = built("roformer")
    q, k = torch.randn(2, 2, 4, TOKENS, 16)
    table = model.roformer.encoder.embed_positions((2, TOKENS))[None, None]
    theirs = RoFormerSelfAttention.apply_rotary_position_embeddings(table, q, k)
    ours = description.wheres()[0].query_key(q, k, ww.positions(TOKENS))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_heads_and_softmax_scales_are_theirs(model_type: str) -> None:
    _, _, description = built(model_type)
    seen = ran(model_type)
    for layer, scale in seen.scales.items():
        heads, key_heads, head_dim = seen.heads[layer]
        ours = description.heads[layer]
        assert (heads, head_dim) == (ours.num_heads, ours.head_dim)
        assert key_heads in (ours.key_heads, ours.num_heads)  # some repeat them before attention
        if scale is not None:
            theirs = scale * head_dim**-0.5 if model_type in PRESCALED else scale
            theirs *= MULTIPLIED.get(model_type, 1.0)
            assert description.scales[layer] == pytest.approx(theirs, rel=1e-12)


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_the_input_layer_is_theirs(model_type: str) -> None:
    if model_type == "blenderbot-small" or model_type in MORE_TABLES:
        return  # below, or measured by the probe
    _, model, description = built(model_type)
    with torch.no_grad(), entering(model, description.part) as entered:
        model(**inputs_of(model, ids()))
    layer = description.input_layer()
    tokens = tables_of(model)[0]
    layer.tokens.weight = tokens.weight
    if isinstance(layer.where.input, ww.Learned):
        layer.where.input.weight = entered.table
        assert entered.table.shape == (
            layer.where.input.max_length + description.position_offset,
            description.token_dim,
        )
    assert entered.vectors is not None
    theirs = entered.vectors[0] if entered.vectors.dim() == 4 else entered.vectors  # Gemma 3n has several streams
    if model_type in HYPER_CONNECTIONS:
        theirs = entered.vectors.reshape(2, TOKENS, -1)[..., : description.dim]
    theirs = theirs.transpose(0, 1) if model_type == "xlnet" else theirs
    ours = getattr(tokens, "embed_norm", nn.Identity())(layer(ids()))  # inside the table of Inkling and Muse
    if entered.kinds is None and not isinstance(layer.where.input, ww.Sinusoidal):
        assert torch.equal(ours, theirs)
        return
    # Sentence kinds are added between the two summands; theirs are float32 angles, off by p * 6e-7 at position p.
    ours = ours if entered.kinds is None else ours + entered.kinds
    torch.testing.assert_close(ours, theirs, rtol=0, atol=TOKENS * 6e-7)


def test_blenderbot_small_norms_token_vectors_before_positions_are_added() -> None:
    _, model, description = built("blenderbot-small")
    entered: list[Tensor] = []
    decoder = model.get_decoder()
    hook = decoder.layers[0].register_forward_pre_hook(lambda module, args: entered.append(args[0]))
    with torch.no_grad():
        model(ids(), decoder_input_ids=ids())
        hook.remove()
        layer = description.input_layer()
        layer.where.input.weight = decoder.embed_positions.weight
        normed = decoder.layernorm_embedding(decoder.embed_tokens(ids()))
        torch.testing.assert_close(normed + layer.where.input(ww.positions(TOKENS)), entered[0])


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_tied_heads(model_type: str) -> None:
    _, model, description = built(model_type)
    tokens, head = tables_of(model)
    if head is not None:
        assert description.tied == (head.weight is tokens.weight)
