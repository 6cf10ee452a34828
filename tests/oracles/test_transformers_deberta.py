"""DeBERTa equals Hugging Face transformers' DeBERTa-v2: rows, scores and a whole module with its weights."""

import pytest
import torch
from torch import Tensor
from transformers import DebertaV2Config
from transformers.models.deberta_v2 import modeling_deberta_v2 as theirs

import whatwhere as ww

from .shared import table_of

HEADS, HEAD_DIM, DIM = 3, 8, 24
TERMS = [["c2p", "p2c"], ["c2p"], ["p2c"]]
SPANS = [(-1, 6), (-1, 40), (6, 9), (8, 40), (32, 64)]  # position_buckets, max_relative_positions


def attention_of(
    terms: list[str], buckets: int = 8, max_distance: int = 40, share: bool = True
) -> theirs.DisentangledSelfAttention:
    """Return a small attention module with random weights."""
    config = DebertaV2Config(
        hidden_size=DIM, num_attention_heads=HEADS, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        relative_attention=True, position_buckets=buckets, max_relative_positions=max_distance, pos_att_type=terms,
        share_att_key=share,
    )  # fmt: skip
    return theirs.DisentangledSelfAttention(config).double().eval()


def like(module: theirs.DisentangledSelfAttention, table: Tensor) -> ww.DeBERTa:
    """Return our scheme with the projections of a table of relative positions."""
    farthest, buckets = module.max_relative_positions, module.position_buckets if module.position_buckets > 0 else None
    scheme = ww.DeBERTa(HEAD_DIM, HEADS, farthest, buckets, terms=module.pos_att_type).double()
    side = farthest if buckets is None else buckets
    shared = module.share_att_key
    projections = {
        "position_keys": module.key_proj if shared else getattr(module, "pos_key_proj", None),
        "position_queries": module.query_proj if shared else getattr(module, "pos_query_proj", None),
    }
    values = {
        name: projections[name](table[: 2 * side]).unflatten(-1, (HEADS, HEAD_DIM)) for name in scheme.state_dict()
    }
    scheme.load_state_dict(values)
    return scheme


def test_rows() -> None:
    """Every distance up to 3,000, for DeBERTa-v3's settings and many more."""
    relative = torch.arange(-3000, 3001)
    settings = [
        (buckets, max_distance)
        for buckets in (4, 6, 8, 16, 32, 48, 64, 100, 128, 256, 512)
        for max_distance in (20, 33, 64, 100, 128, 200, 256, 300, 511, 512, 513, 1000, 1024, 2048)
        if max_distance > buckets // 2 + 1
    ]
    assert (256, 512) in settings
    assert len(settings) > 120
    for buckets, max_distance in settings:
        index = theirs.make_log_bucket_position(relative, buckets, max_distance).long()
        rows = (index + buckets).clamp(0, 2 * buckets - 1)
        assert torch.equal(ww.DeBERTa(1, 1, max_distance, buckets).rows(relative), rows), (buckets, max_distance)


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.parametrize(("buckets", "max_distance"), SPANS)
def test_scores(buckets: int, max_distance: int, terms: list[str], share: bool) -> None:
    """What they add to the scores, at 50 tokens."""
    module = attention_of(terms, buckets, max_distance, share)
    table = torch.randn(2 * module.pos_ebd_size, DIM, dtype=torch.float64)
    q, k = (torch.randn(2, HEADS, 50, HEAD_DIM, dtype=torch.float64) for _ in range(2))
    wanted = module.disentangled_attention_bias(q.flatten(0, 1), k.flatten(0, 1), None, table, 1 + len(terms))
    p = ww.positions(50)
    element = like(module, table).bind(p, p, q=q, k=k)
    mine = table_of(element, 2, HEADS, 50, 50)
    torch.testing.assert_close(mine.flatten(0, 1), wanted, rtol=1e-7, atol=1e-9)  # their sqrt is float32
