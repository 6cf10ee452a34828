"""A learned table on a grid equals that of Hugging Face's ViT, and two sinusoids those of its Marian and M2M-100."""

import pytest
import torch
from transformers import ViTConfig
from transformers.models.m2m_100.modeling_m2m_100 import M2M100SinusoidalPositionalEmbedding
from transformers.models.vit.modeling_vit import ViTEmbeddings

import whatwhere as ww


@pytest.mark.parametrize("new", [(6, 6), (3, 3), (5, 7), (4, 4)])
def test_vit_at_another_resolution(new: tuple[int, int]) -> None:
    config = ViTConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=16, patch_size=4)
    theirs = ViTEmbeddings(config).double()
    with torch.no_grad():
        theirs.position_embeddings.normal_()
        tokens = torch.zeros(1, 1 + new[0] * new[1], 16, dtype=torch.float64)
        wanted = theirs.interpolate_pos_encoding(tokens, height=4 * new[0], width=4 * new[1])
        scheme = ww.Learned(16, 17, dtype=torch.float64)
        scheme.weight.copy_(theirs.position_embeddings[0])
        ours = scheme.resized_grid((4, 4), new, prefix=1)
        torch.testing.assert_close(ours(ww.positions(len(tokens[0]))), wanted, rtol=0, atol=1e-14)


@pytest.mark.parametrize("dim", [4, 16, 64])
def test_m2m_100_sinusoid(dim: int) -> None:
    """It has tensor2tensor's frequencies, in float32: off by 1.2e-7 a position, and by its exp."""
    theirs = M2M100SinusoidalPositionalEmbedding.get_embedding(1024, dim)
    ours = ww.Sinusoidal(dim, layout="tensor2tensor")(ww.positions(1024))[0]
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1024 * 6e-7)
