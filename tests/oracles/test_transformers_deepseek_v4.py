"""Rotary positions in the last features of a head equal those of transformers' DeepSeek-V4."""

import torch
from transformers.models.deepseek_v4 import modeling_deepseek_v4 as deepseek_v4

import whatwhere as ww


def test_the_last_features_are_rotated() -> None:
    """Interleaved pairs, 64 of 512 features; the output is rotated back by the opposite angles."""
    rope, p = ww.Rotary(512, rotary_dim=64, rotary_start=448, interleaved=True), ww.positions(9, start=300)
    q = torch.randn(2, 3, 9, 512)
    angles = p.index[0, :, :, None].double() * rope.inverse_frequencies
    theirs = deepseek_v4.apply_rotary_pos_emb(q, angles.cos().float(), angles.sin().float())
    torch.testing.assert_close(rope(q, q, p)[0], theirs, rtol=0, atol=1e-6)
    first = ww.Rotary(512, rotary_dim=64, interleaved=True)(q, q, p)[0]
    assert (first - theirs).abs().max() > 1
