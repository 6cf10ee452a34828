"""CoPE and FoX equal x-transformers' CoPE and DataDependentAlibi."""

import pytest
import torch
from x_transformers import x_transformers as xt
from x_transformers.attend import Attend

import whatwhere as ww

TOKENS, HEADS, HEAD_DIM, DIM = 40, 4, 16, 24


def queries_keys_values() -> tuple[torch.Tensor, ...]:
    """Sample them for two sequences."""
    return tuple(torch.randn(2, HEADS, TOKENS, HEAD_DIM) for _ in range(3))


@pytest.mark.parametrize("max_distance", [4, 64])
@torch.no_grad()
def test_x_transformers_cope(max_distance: int) -> None:
    """The whole attention: theirs scales the scores, masks them, counts, and adds <q, e>."""
    scheme = ww.CoPE(HEAD_DIM, HEADS, max_distance, std=1.0)
    theirs = xt.CoPE(HEAD_DIM, HEADS, max_distance)
    theirs.pos_emb.copy_(scheme.weight)
    attend = Attend(heads=HEADS, causal=True, cope=theirs, scale=HEAD_DIM**-0.5)
    q, k, v = queries_keys_values()
    wanted, _ = attend(q, k, v)
    ours = ww.Where(score=scheme).at(ww.positions(TOKENS)).attention(q, k, v)
    # Both count in float32: 40 gates, each off by 2**-25, meet differences of <q, e> up to 20.
    torch.testing.assert_close(ours, wanted, rtol=0, atol=2e-5)
    assert (ours - ww.Where().at(ww.positions(TOKENS)).attention(q, k, v)).abs().max() > 0.1


@torch.no_grad()
def test_x_transformers_forgetting() -> None:
    """Their bias for the Forgetting Transformer, which sums in float32."""
    scheme, theirs = ww.FoX(DIM, HEADS), xt.DataDependentAlibi(DIM, HEADS)
    linear = theirs.to_forget_gates[0]
    scheme.weight.copy_(linear.weight)
    scheme.bias.copy_(linear.bias - 3)
    linear.bias -= 3
    x = torch.randn(2, TOKENS, DIM)
    q, k, v = queries_keys_values()
    here = ww.Where(score=scheme).at(ww.positions(TOKENS))
    seen = torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()
    bias = theirs(x).masked_fill(~seen, -torch.inf)
    wanted = torch.nn.functional.scaled_dot_product_attention(q, k, v, bias)
    ours = here.attention(q, k, v, gates=here.gates(x))
    torch.testing.assert_close(ours, wanted, rtol=0, atol=1e-5)
    assert (ours - ww.Where().at(ww.positions(TOKENS)).attention(q, k, v)).abs().max() > 0.1
