"""Rotated last features, compressed keys and outputs rotated back equal those of transformers' DeepSeek-V4."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import DeepseekV4Config
from transformers.models.deepseek_v4 import modeling_deepseek_v4 as deepseek_v4

import whatwhere as ww

RATE = 4


def angles_of(rope: ww.Rotary, p: ww.Positions) -> tuple[Tensor, Tensor]:
    """Return cosine and sine as their function takes them: one for each pair."""
    radians = p.index[0, :, :, None].double() * rope.inverse_frequencies
    return radians.cos().float(), radians.sin().float()


def test_the_last_features_are_rotated() -> None:
    """Interleaved pairs, 64 of 512 features; the output is rotated back by the opposite angles."""
    rope, p = ww.Rotary(512, rotary_dim=64, rotary_start=448, interleaved=True), ww.positions(9, start=300)
    q, (cos, sin) = torch.randn(2, 3, 9, 512), angles_of(rope, p)
    theirs = deepseek_v4.apply_rotary_pos_emb(q, cos, sin)
    torch.testing.assert_close(rope(q, q, p)[0], theirs, rtol=0, atol=1e-6)
    first = ww.Rotary(512, rotary_dim=64, interleaved=True)(q, q, p)[0]
    assert (first - theirs).abs().max() > 1
    back = deepseek_v4.apply_rotary_pos_emb(q, cos, -sin)
    torch.testing.assert_close(rope.rotate_back(q, rope.bind(p)), back, rtol=0, atol=1e-6)


def compressed_attention() -> tuple[Any, Any]:
    """Return a layer of heavily compressed attention, one key for each four tokens, and its rotary."""
    config = DeepseekV4Config(
        hidden_size=32, num_attention_heads=2, num_hidden_layers=1, head_dim=16, q_lora_rank=8, o_lora_rank=8,
        o_groups=1, sliding_window=64, layer_types=["heavily_compressed_attention"],
        compress_rates={"heavily_compressed_attention": RATE, "compressed_sparse_attention": 2},
        rope_parameters={
            name: {"rope_type": "default", "rope_theta": theta, "partial_rotary_factor": 0.5}
            for name, theta in (("main", 10_000.0), ("compress", 160_000.0))
        },
        attn_implementation="record",
    )  # fmt: skip
    layer = deepseek_v4.DeepseekV4Attention(config, 0)
    for weight in layer.parameters():
        nn.init.normal_(weight, std=0.3)
    return layer.eval(), deepseek_v4.DeepseekV4RotaryEmbedding(config)


def test_compressed_keys_and_outputs_that_are_rotated_back(recorded: list[Any]) -> None:
    """A key of each window at its first position, seen once the window is complete: other positions, not other code."""
    (layer, rotary), tokens = compressed_attention(), 18
    x, ids = torch.randn(2, tokens, 32), torch.arange(tokens)[None].expand(2, -1)
    tables = {name: rotary(x, ids, layer_type=name) for name in ("main", "compress")}
    causal = torch.full((tokens, tokens), -torch.inf).triu(1)[None, None].expand(2, 1, -1, -1)
    with torch.no_grad():
        layer(x, tables, ids, causal)
    query, key, output, mask, scaling = (recorded[-1][name] for name in ("q", "k", "y", "mask", "scaling"))
    cos, sin = tables["compress"]
    wanted = deepseek_v4.apply_rotary_pos_emb(output, cos, -sin, unsqueeze_dim=2).transpose(1, 2)

    rope = ww.Rotary(16, 160_000.0, rotary_dim=8, rotary_start=8, interleaved=True)
    windows, p = torch.arange(tokens // RATE), ww.positions(tokens)
    keys = ww.Positions.from_coordinates(
        torch.cat([torch.arange(tokens), RATE * windows]),
        order=torch.cat([torch.arange(tokens), RATE * windows + RATE - 1]),
    )
    assert torch.equal(p.mask(keys)[0, 0], mask[0, 0] == 0)
    raw_q, raw_k = rope.rotate_back(query, rope.bind(p)), rope.rotate_back(key, rope.bind(keys))
    here = ww.Where(rope, scale=scaling).at(p, keys)
    mapped_q, mapped_k = here.query_key(raw_q, raw_k)
    ours = rope.rotate_back(here.attention(mapped_q, mapped_k, mapped_k), rope.bind(p))
    torch.testing.assert_close(ours, wanted, rtol=0, atol=1e-5)
    slots = ww.Where(rope, scale=scaling).at(p, ww.Positions.from_coordinates(torch.arange(keys.tokens), keys.order))
    assert (slots.query_key(raw_q, raw_k)[1] - mapped_k).abs().max() > 0.1
