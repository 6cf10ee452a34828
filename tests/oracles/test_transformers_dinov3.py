"""Axial rotary equals that of transformers' Qwen2-VL, and at real coordinates, in training too, of its DINOv3."""

import pytest
import torch
from transformers import DINOv3ViTConfig
from transformers.models.dinov3_vit import modeling_dinov3_vit as dinov3
from transformers.models.qwen2_vl import modeling_qwen2_vl as qwen2
from transformers.models.qwen2_vl.configuration_qwen2_vl import Qwen2VLVisionConfig

import whatwhere as ww

from .shared import require_close

CONFIG = {"hidden_size": 64, "num_attention_heads": 2, "patch_size": 4, "image_size": 32, "rope_theta": 100.0}


def rotated(module: torch.nn.Module, q: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """Return queries as DINOv3 rotates them: patches alone, not the tokens before them."""
    cos, sin = module(torch.zeros(1, 3, 4 * height, 4 * width))
    return dinov3.apply_rotary_pos_emb(q, q, cos, sin)[0]


@pytest.mark.parametrize(("height", "width"), [(8, 8), (3, 7), (1, 1), (20, 2)])
def test_centers_of_patches(height: int, width: int) -> None:
    """At any resolution, with five tokens before the patches."""
    module = dinov3.DINOv3ViTRopePositionEmbedding(DINOv3ViTConfig(**CONFIG)).eval()
    rope, p = ww.AxialRotary(32, theta=100.0), ww.Positions.centered_grid(height, width, prefix=5)
    q = torch.randn(2, 3, 5 + height * width, 32)
    torch.testing.assert_close(rope(q, q, p)[0], rotated(module, q, height, width), rtol=0, atol=2e-5)
    assert torch.equal(rope(q, q, p)[0][:, :, :5], q[:, :, :5])


def test_shift_jitter_and_rescale_of_training() -> None:
    """From one seed, both sample the same."""
    settings = {"pos_embed_shift": 0.2, "pos_embed_jitter": 1.5, "pos_embed_rescale": 2.0}
    module = dinov3.DINOv3ViTRopePositionEmbedding(DINOv3ViTConfig(**CONFIG, **settings)).train()
    q = torch.randn(1, 2, 30, 32)
    torch.manual_seed(7)
    wanted = rotated(module, q, 5, 6)
    p = ww.Positions.centered_grid(5, 6, shift=0.2, jitter=1.5, rescale=2.0, generator=torch.Generator().manual_seed(7))
    rope = ww.AxialRotary(32, theta=100.0)
    torch.testing.assert_close(rope(q, q, p)[0], wanted, rtol=0, atol=2e-5)
    assert (wanted - rotated(module.eval(), q, 5, 6)).abs().max() > 0.1


@pytest.mark.parametrize("head_dim", [32, 80])
def test_the_vision_part_of_qwen2_vl_is_axial(head_dim: int) -> None:
    config = Qwen2VLVisionConfig(embed_dim=4 * head_dim, num_heads=4)
    p = ww.Positions.grid(30, 50)
    cos, sin = qwen2.Qwen2VLVisionRotaryEmbedding(config)(torch.zeros(1), p.index.transpose(0, 1))
    q, k = torch.randn(2, p.tokens, 4, head_dim)  # (tokens, heads, head_dim) is their order
    theirs = qwen2.apply_rotary_pos_emb_vision(q, k, cos[0], sin[0])
    ours = ww.AxialRotary(head_dim)(q.transpose(0, 1)[None], k.transpose(0, 1)[None], p)
    require_close(tuple(x[0].transpose(0, 1) for x in ours), theirs, 5 * 50 * 3e-7)


def test_whole_rows_and_columns_are_other_angles() -> None:
    """The usual grid of an axial rotary gives scores that have nothing to do with DINOv3's."""
    module = dinov3.DINOv3ViTRopePositionEmbedding(DINOv3ViTConfig(**CONFIG)).eval()
    q, rope = torch.randn(1, 2, 48, 32), ww.AxialRotary(32, theta=100.0)
    scores = [x @ x.mT for x in (rope(q, q, ww.Positions.grid(6, 8))[0], rotated(module, q, 6, 8))]
    assert (scores[0] - scores[1]).abs().max() > 10
