"""Rotary and rotary attention equal Hugging Face transformers' Llama, GPT-NeoX and GPT-J."""

import pytest
import torch
from torch import Tensor
from transformers import GPTJConfig, GPTNeoXConfig, LlamaConfig
from transformers.models.gpt_neox import modeling_gpt_neox as neox
from transformers.models.gptj import modeling_gptj as gptj
from transformers.models.llama import modeling_llama as llama

import whatwhere as ww

from .shared import ANGLES, LENGTH, merge, queries_and_keys, require_close, split


def llama_config(head_dim: int = 16, theta: float = 10_000.0) -> LlamaConfig:
    """Return a Llama of six heads over two key heads."""
    return LlamaConfig(
        hidden_size=6 * head_dim,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=head_dim,
        rope_parameters={"rope_type": "default", "rope_theta": theta},
        attn_implementation="eager",
    )


def neox_config(share: float) -> GPTNeoXConfig:
    """Return a GPT-NeoX whose heads of 32 rotate a part of their features."""
    return GPTNeoXConfig(
        hidden_size=128,
        num_attention_heads=4,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": share},
        attn_implementation="eager",
    )


def gptj_config(rotary_dim: int) -> GPTJConfig:
    """Return a GPT-J of four heads of 16."""
    return GPTJConfig(n_embd=64, n_head=4, rotary_dim=rotary_dim, n_positions=LENGTH, attn_pdrop=0.0, resid_pdrop=0.0)


def left_padded() -> tuple[ww.Positions, Tensor, Tensor]:
    """Return 10 tokens of which the first three of one sequence are padding, as positions, ids and additive mask."""
    p = ww.Positions.from_mask(torch.tensor([[0] * 3 + [1] * 7, [1] * 10]))
    added = torch.zeros(2, 1, 10, 10, dtype=torch.float64).masked_fill(~p.mask(), -1e30)
    return p, p.index[0], added


@pytest.mark.parametrize("head_dim", [16, 64, 128])
@pytest.mark.parametrize("theta", [10_000.0, 500_000.0])
def test_llama(head_dim: int, theta: float) -> None:
    q, k = queries_and_keys(head_dim)
    ids = torch.stack([torch.arange(LENGTH), torch.arange(LENGTH).flip(0)])
    cos, sin = llama.LlamaRotaryEmbedding(llama_config(head_dim, theta))(q, ids)
    theirs = llama.apply_rotary_pos_emb(q, k, cos, sin)
    p = ww.Positions(ids[None], torch.arange(LENGTH).expand(2, -1))
    ours = ww.Rotary(head_dim, theta)(q, k, p)
    require_close(ours, theirs, 5 * ANGLES)  # features of up to 5 standard deviations


@pytest.mark.parametrize("share", [0.25, 0.5, 1.0])
def test_gpt_neox_rotates_the_first_features(share: float) -> None:
    q, k = queries_and_keys(32)
    cos, sin = neox.GPTNeoXRotaryEmbedding(neox_config(share))(q, torch.arange(LENGTH)[None])
    theirs = neox.apply_rotary_pos_emb(q, k, cos, sin)
    rope = ww.Rotary(32, rotary_dim=int(32 * share))
    ours = rope(q, k, ww.positions(LENGTH))
    require_close(ours, theirs, 5 * ANGLES)
    assert torch.equal(ours[0][..., rope.rotary_dim :], q[..., rope.rotary_dim :])


@pytest.mark.parametrize("rotary_dim", [4, 16])
def test_gptj_pairs_neighboring_features(rotary_dim: int) -> None:
    q, k = queries_and_keys(16)
    sin, cos = gptj.create_sinusoidal_positions(LENGTH, rotary_dim).expand(2, -1, -1).chunk(2, dim=-1)
    ours = ww.Rotary(16, interleaved=True, rotary_dim=rotary_dim)(q, k, ww.positions(LENGTH))
    for x, mine in zip((q, k), ours, strict=True):
        # (batch, tokens, heads, head_dim) is their order
        rotated = gptj.apply_rotary_pos_emb(x[..., :rotary_dim].transpose(1, 2), sin, cos).transpose(1, 2)
        wanted = torch.cat([rotated, x[..., rotary_dim:]], dim=-1)
        torch.testing.assert_close(mine, wanted, rtol=0, atol=5 * ANGLES)


# Whole attention modules, with their weights and left padding; float64, but for GPT-J, whose scores are float32


def attend(where: ww.Where, p: ww.Positions, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attend at the bound positions and merge the heads."""
    here = where.at(p)
    return merge(here.attention(*here.query_key(q, k), v))


def test_llama_attention() -> None:
    config = llama_config()
    module = llama.LlamaAttention(config, layer_idx=0).double().eval()
    p, ids, added = left_padded()
    x = torch.randn(2, 10, config.hidden_size, dtype=torch.float64)
    tables = llama.LlamaRotaryEmbedding(config)(x, ids)
    wanted, _ = module(x, position_embeddings=tables, attention_mask=added)
    q, k, v = (split(project(x), 16) for project in (module.q_proj, module.k_proj, module.v_proj))
    mine = module.o_proj(attend(ww.Where(query_key=ww.Rotary(16)), p, q, k, v))
    real = p.segment == 0
    torch.testing.assert_close(mine[real], wanted[real], rtol=0, atol=1e-6)


# Where they are wrong: pinned, so that we notice when it is no longer so


def test_pin_float32_angles_fail_at_a_million() -> None:
    """float32 keeps 24 bits: near 1,000,000 an angle is off by up to 0.03, and its frequency adds to it."""
    q = torch.cat([torch.ones(64), torch.zeros(64)]).expand(1, 1, 1, 128)  # a turned (1, 0) is (cos, sin)
    at = torch.tensor([[1_000_000]])
    theirs, _ = llama.LlamaRotaryEmbedding(llama_config(128))(q, at)
    exact = (1_000_000 * ww.Rotary(128).inverse_frequencies).cos()
    ours = ww.Rotary(128)(q, q, at)[0][0, 0, 0, :64]
    assert (theirs[0, 0, :64] - exact).abs().max() > 1e-2
    assert (ours - exact).abs().max() < 6e-8


def test_pin_a_cast_of_the_module_rounds_their_frequencies() -> None:
    """`.to(torch.bfloat16)` casts the buffer inv_freq: a cosine is then off by more than 1, and so is every score."""
    config = llama_config(64)
    ids = torch.arange(4096)[None]
    x = torch.zeros(1)
    cast = llama.LlamaRotaryEmbedding(config).to(torch.bfloat16)(x, ids)[0]
    kept = llama.LlamaRotaryEmbedding(config)(x, ids)[0]
    assert (cast - kept).abs().max() > 1
    q = torch.cat([torch.ones(32), torch.zeros(32)]).expand(1, 1, 4096, 64)
    ours, after = ww.Rotary(64)(q, q, ids)[0], ww.Rotary(64).to(torch.bfloat16)(q, q, ids)[0]
    assert torch.equal(ours, after)
