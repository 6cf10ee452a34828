"""Shaw equals the `relative_key` positions of Hugging Face transformers' Wav2Vec2-BERT."""

import pytest
import torch
from transformers import Wav2Vec2BertConfig
from transformers.models.wav2vec2_bert import modeling_wav2vec2_bert as theirs

import whatwhere as ww

from .shared import merge, split


def attention_of(left: int, right: int) -> theirs.Wav2Vec2BertSelfAttention:
    """Return a small attention module with random weights."""
    config = Wav2Vec2BertConfig(
        hidden_size=24, num_attention_heads=3, attention_dropout=0.0, position_embeddings_type="relative_key",
        left_max_position_embeddings=left, right_max_position_embeddings=right, attn_implementation="eager",
    )  # fmt: skip
    return theirs.Wav2Vec2BertSelfAttention(config).double().eval()


def like(module: theirs.Wav2Vec2BertSelfAttention, left: int, right: int) -> ww.Shaw:
    """Return our scheme with a module's table."""
    scheme = ww.Shaw(8, 3, left, right).double()
    scheme.load_state_dict(module.distance_embedding.state_dict())
    return scheme


@pytest.mark.parametrize(("left", "right"), [(64, 8), (4, 2)])
def test_attention(left: int, right: int) -> None:
    """A whole module with its weights, looking both ways."""
    module = attention_of(left, right)
    x = torch.randn(2, 20, 24, dtype=torch.float64)
    wanted, _ = module(x)
    here = ww.Where(score=like(module, left, right)).at(ww.positions(20))
    q, k, v = (split(projection(x)) for projection in (module.linear_q, module.linear_k, module.linear_v))
    y = here.attention(q, k, v, causal=False)
    mine = module.linear_out(merge(y))
    torch.testing.assert_close(mine, wanted, rtol=0, atol=1e-12)
