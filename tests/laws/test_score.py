"""Laws 12 to 14, of the score door."""

import pytest
import torch
from torch.nn import functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import whatwhere as ww

from . import laws
from .cases import HEADS, KEY_HEADS, each
from .model import HEAD_DIM, attend, draw, model

LEFT = torch.tensor([[1, 1, 1, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1, 1]], dtype=torch.bool)
POSITIONS = {
    "run": ww.positions(7, start=3),
    "packed": ww.Positions.packed([3, 4]),
    "left-padded": ww.Positions.from_mask(LEFT),
}
# FlexAttention compiles what it is given, on the CPU too.
FLEX = pytest.param("flex", marks=pytest.mark.compile)


def has_table(case):
    return case.row.door == "score" and not case.by_content


@pytest.mark.every_nth(7)
@each(lambda case: not case.options)
@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("engine", ["sdpa", FLEX])
def test_law_12_engines(engine, positions, case):
    laws.engines_agree(model(case), POSITIONS[positions], engine)


@pytest.mark.every_nth(7)
@each(lambda case: not case.causal_only and (not case.options or case.row.causal_only))
@pytest.mark.parametrize(
    ("engine", "positions"),
    [*(("sdpa", each) for each in POSITIONS), pytest.param("flex", "left-padded", marks=pytest.mark.compile)],
)
def test_law_12_engines_of_an_encoder(engine, positions, case):
    laws.engines_agree_on_an_encoder(case.build(), POSITIONS[positions], engine)


@pytest.mark.every_nth(5)
@pytest.mark.compile
@each(has_table)
@pytest.mark.parametrize("decoding", [False, True])
def test_law_12_table_and_score_mod_in_plain_torch(decoding, case):
    """The same scheme without Where: its table in PyTorch's attention, its score_mod in FlexAttention."""
    torch.manual_seed(0)
    score = case.build().score
    keys = ww.positions(9, start=torch.tensor([0, 30]))
    p = keys[-1:] if decoding else keys
    q, k, v = (draw(2, heads, t, HEAD_DIM, seed=t) for heads, t in ((HEADS, p.tokens), (KEY_HEADS, 9), (KEY_HEADS, 9)))
    with torch.no_grad():
        causal = score.causal_only
        mask = p.mask(keys, causal)
        blocks = create_block_mask(p.allowed(keys, True), 2, HEADS, p.tokens, 9, "cpu") if causal else None
        dense = F.scaled_dot_product_attention(q, k, v, attn_mask=score(p, keys, causal=causal), enable_gqa=True)
        flex = flex_attention(q, k, v, score_mod=score.score_mod(p, keys), block_mask=blocks, enable_gqa=True)
        bare = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
    torch.testing.assert_close(flex, dense, rtol=0, atol=2e-6)
    assert (bare - dense).abs().max() > 1e-3, "the bias changes nothing"


# PyTorch says so of its own doing, when it traces FlexAttention around a tensor that asks for a gradient.
@pytest.mark.every_nth(5)
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.compile
@each(lambda case: case.row.door == "score" and case.row.learned)
def test_law_12_a_learned_bias_gets_its_gradient_from_every_engine(case):
    torch.manual_seed(0)
    where, slopes = case.build().double(), {}
    for engine in ("dense", "sdpa", "flex"):
        where.zero_grad()
        attend(where, POSITIONS["packed"], dtype=torch.float64, engine=engine).square().sum().backward()
        slopes[engine] = [weights.grad.clone() for weights in where.parameters()]
    torch.testing.assert_close(slopes["sdpa"], slopes["dense"], rtol=0, atol=1e-10)
    torch.testing.assert_close(slopes["flex"], slopes["dense"], rtol=0, atol=1e-10)
    assert any(bool(slope.any()) for slope in slopes["dense"])


@each(lambda case: case.causal_only)
def test_causal_biases_refuse_later_keys(case):
    with pytest.raises(ww.errors.SettingError, match="causal=False"):
        attend(case.build(), ww.positions(5), causal=False)


@each(lambda case: has_table(case) and case.row.relative)
def test_law_13_tables_do_not_move_at_all(case):
    """A bias is made of whole-number distances, so a shift leaves every bit as it was."""
    score = case.build().score
    here, there = (ww.positions(12, start=start) for start in (0, case.row.tested_up_to - 12))
    laws.require_equal([score(there, causal=score.causal_only)], [score(here, causal=score.causal_only)])


@each(has_table)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("heads", [4, 12])
def test_law_14_finite(heads, dtype, case):
    laws.finite_at(case.build(dim=192, num_heads=heads).score, case.row.tested_up_to, dtype)


@each(has_table)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_law_14_attention_is_finite(dtype, case):
    ends = ww.Positions.from_position_ids(torch.tensor([0, 1, case.row.tested_up_to - 2, case.row.tested_up_to - 1]))
    for engine in ("dense", "sdpa"):
        assert attend(case.build(), ends, dtype=dtype, engine=engine).isfinite().all()


@each(lambda case: has_table(case) and case.row.distinct_up_to is not None)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("heads", [4, 12])
def test_law_14_near_distances_differ(heads, dtype, case):
    laws.distinct_over(case.build(dim=192, num_heads=heads).score, case.row.distinct_up_to, dtype)
