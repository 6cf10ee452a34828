"""Transformer-XL's positions equal those of Hugging Face transformers' XLNet, with its weights."""

import pytest
import torch
from transformers import XLNetConfig
from transformers.models.xlnet.modeling_xlnet import XLNetModel, XLNetRelativeAttention

import whatwhere as ww

HEADS, DIM, TOKENS, MEMORY = 3, 24, 12, 7


def model() -> tuple[XLNetModel, XLNetRelativeAttention]:
    """Return a small XLNet, for its sinusoid, and its attention with weights of size 1 and no norm at the end."""
    config = XLNetConfig(vocab_size=8, d_model=DIM, n_head=HEADS, n_layer=1, d_inner=8, dropout=0.0, attn_type="bi")
    whole = XLNetModel(config).double().eval()
    module = whole.layer[0].rel_attn
    with torch.no_grad():
        for weight in module.parameters():
            weight.normal_(std=0.5)
    return whole, module


def like(module: XLNetRelativeAttention) -> ww.TransformerXL:
    """Return our scheme with a module's weights."""
    scheme = ww.TransformerXL(DIM // HEADS, HEADS, DIM).double()
    scheme.load_state_dict({"u": module.r_w_bias, "v": module.r_r_bias, "weight": module.r.permute(1, 2, 0)})
    return scheme


@pytest.mark.parametrize("memory", [0, MEMORY])
@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal: bool, memory: int) -> None:
    """The relative attention core: new tokens look at themselves and at a memory; later keys have their own side."""
    whole, module = model()
    keys = memory + TOKENS
    x = torch.randn(2, keys, DIM, dtype=torch.float64)
    q, k, v = (torch.einsum("bih,hnd->bnid", x, weight) for weight in (module.q, module.k, module.v))
    q = q[:, :, memory:]
    at_keys = ww.positions(keys)
    at_queries = at_keys[memory:]
    r = whole.relative_positional_encoding(TOKENS, keys, bsz=2).double()
    k_r = torch.einsum("ibh,hnd->ibnd", r, module.r)
    hidden = ~at_queries.mask(at_keys, causal)[0, 0]
    theirs = module.rel_attn_core(
        *(head.permute(2, 0, 1, 3) for head in (q, k, v)), k_r, attn_mask=hidden[:, :, None, None].double()
    )
    here = ww.Where(score=like(module)).at(at_queries, at_keys)
    ours = here.attention(q, k, v, causal=causal)
    # They take frequencies and angles in float32, which at distance 19 is 2e-6 from the angle.
    torch.testing.assert_close(ours, theirs.permute(1, 2, 0, 3), rtol=0, atol=5e-6)
