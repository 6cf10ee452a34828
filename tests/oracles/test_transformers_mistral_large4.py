"""Learned frequencies and the learned temperature equal those of transformers' Mistral Large 4."""

import torch
from transformers import MistralLarge4TextConfig
from transformers.models.mistral_large4 import modeling_mistral_large4 as theirs

import whatwhere as ww


def test_learned_frequencies_over_yarn() -> None:
    """LeRoPE: the frequencies of YaRN times exp(alpha), alpha from the checkpoint."""
    config = MistralLarge4TextConfig(num_hidden_layers=4)
    module = theirs.MistralLarge4TextRotaryEmbedding(config)
    module.alpha.copy_(0.1 * torch.randn(32))
    yarn = ww.scaling.YaRN(factor=2048.0, original_length=512, attention_factor=1.0)
    rope = ww.LearnedRotary(64, 10_000.0, interleaved=True, scaling=yarn)
    rope.load_state_dict(module.state_dict())
    p = torch.arange(500)[None]
    q = torch.randn(2, 3, 500, 64)
    with torch.no_grad():
        cos, sin = module(q, p)
        wanted, _ = theirs.apply_rotary_pos_emb_interleave(q, q, cos, sin)
        # Their angles are float32: at position 499 they are off by up to 499 * 1.2e-7.
        pairs = torch.cat([rope(q, q, p)[0][..., 0::2], rope(q, q, p)[0][..., 1::2]], dim=-1)
        torch.testing.assert_close(pairs, wanted, rtol=0, atol=5e-4)
        assert (ww.Rotary(64, interleaved=True, scaling=yarn)(q, q, p)[0] - rope(q, q, p)[0]).abs().max() > 1


def test_ssmax_with_a_bias() -> None:
    """A learned factor of the logarithm of the position plus 1, and a learned bias, for each head."""
    module, scheme = theirs.MistralLarge4TextSoftmaxScaling(3), ww.SSMax(8, 3, bias=True)
    with torch.no_grad():
        module.scale.copy_(torch.tensor([0.1, 0.4, -0.2]))
        module.bias.copy_(torch.tensor([1.0, 0.0, 0.5]))
        scheme.weight.copy_(module.scale)
        scheme.bias.copy_(module.bias)
    p, q = torch.arange(90_000, 90_020)[None], torch.randn(2, 3, 20, 8)
    torch.testing.assert_close(scheme(q, q, p)[0], module(q, p, True), rtol=1e-6, atol=1e-6)
    assert {name for name, _ in scheme.named_parameters()} == {"weight", "bias"}
