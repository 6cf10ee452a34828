"""Names that people try, of other libraries, are answered with what to write here."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import whatwhere as ww
from whatwhere.errors import SettingError

q = torch.ones(1, 2, 3, 8)
WHERE = ww.Where(ww.Rotary(8))
HERE = WHERE.at(3)
IDS = torch.ones(1, 2, 3, dtype=torch.long)

TRIED: dict[str, tuple[Callable[..., Any], str]] = {
    "attn_mask": (lambda **named: HERE.attention(q, q, q, **named), "Pass mask=.*True where a query may attend"),
    "is_causal": (lambda **named: HERE(q, q, q, **named), "Pass causal="),
    "dropout_p": (lambda **named: HERE.attention_with_lse(q, q, q, **named), "Pass dropout="),
    "attention_mask": (lambda **named: HERE(q, q, q, **named), "from_mask"),
    "scale": (lambda **named: HERE.attention(q, q, q, **named), r"Where\(\.\.\., scale="),
    "position_ids": (lambda **named: WHERE.at(**named), "Pass queries="),
    "base": (lambda **named: ww.Rotary(8, **named), "Pass theta="),
    "dim": (lambda **named: ww.Rotary(**named), "Pass head_dim="),
    "max_position_embeddings": (lambda **named: ww.Rotary(8, **named), "no maximum"),
    "block_size": (lambda **named: ww.Learned(8, **named), "Pass max_length="),
    "n_heads": (lambda **named: ww.T5(**named), "Pass num_heads="),
    "vocab_size": (lambda **named: ww.TokenEmbedding(embedding_dim=8, **named), "Pass num_embeddings="),
    "num_embeddings": (lambda **named: ww.InputLayer(dim=8, **named), "Pass vocab_size="),
    "sliding_window": (lambda **named: ww.Where(**named), "Pass window="),
    "causal": (lambda **named: ww.Where(**named), "here"),
    "dropout": (lambda **named: ww.Where(**named), "here.*nn.Dropout"),
    "where": (lambda **named: ww.InputLayer(9, 8, **named), r"Pass input=.*belongs to a Where"),
    "positions": (lambda **named: ww.InputLayer(9, 8, **named), r"layer\(ids, positions\)"),
    "weight": (lambda **named: ww.TokenEmbedding(9, 8).loss(q, IDS, **named), "reduction='none'"),
    "shift": (lambda **named: ww.TokenEmbedding(9, 8).loss(q, IDS, **named), r"hidden\[:, :-1\], ids\[:, 1:\]"),
    "class_weights": (lambda **named: ww.linear_cross_entropy(q, q[0, 0], IDS, **named), "reduction='none'"),
    "size_average": (lambda **named: ww.linear_cross_entropy(q, q[0, 0], IDS, **named), "Pass reduction="),
    "logit_softcapping": (lambda **named: ww.TokenEmbedding(9, 8).loss(q, IDS, **named), "Pass softcap="),
    "original_max_position_embeddings": (lambda **named: ww.scaling.YaRN(2.0, **named), "Pass original_length="),
    "rope_scaling": (lambda **named: ww.Rotary(8, **named), r"Pass scaling=.*from_huggingface\(config\)"),
    "is_neox_style": (lambda **named: ww.Rotary(8, **named), "is_neox_style=False, else False"),
    "rotary_pct": (lambda **named: ww.Rotary(8, **named), "rotary_dim"),
    "rope": (lambda **named: ww.Where(**named), r"Where\(Rotary"),
    "max_cache_len": (lambda **named: WHERE.cache(**named), "Pass capacity="),
    "labels": (lambda **named: ww.TokenEmbedding(9, 8).loss(q, **named), "Pass targets="),
}


@pytest.mark.parametrize("name", ["attn_mask", "is_causal", "dropout_p"])
@pytest.mark.parametrize("call", [ww.Where, WHERE.at])
def test_arguments_of_attention_passed_too_early(call: Callable[..., Any], name: str) -> None:
    with pytest.raises(SettingError, match=r"has no argument(.|\n)* here\(q, k, v, (mask|causal|dropout)="):
        call(3, **{name: True})


@pytest.mark.parametrize("name", TRIED)
def test_arguments(name: str) -> None:
    call, way = TRIED[name]
    with pytest.raises(SettingError, match=f"has no argument '{name}'(.|\n)*{way}"):
        call(**{name: 1})
    with pytest.raises(TypeError, match="unexpected keyword"):
        call(misspelled=1)


def test_the_weight_of_classes_is_not_that_of_the_table() -> None:
    with pytest.raises(
        SettingError, match=r"linear_cross_entropy has no other argument 'weight'(.|\n)*reduction='none'"
    ):
        ww.linear_cross_entropy(q, q[0, 0], IDS, weight=q)  # type: ignore[misc]
    assert ww.linear_cross_entropy(q, weight=torch.ones(2, 8), targets=IDS).isfinite()


def test_a_scheme_that_takes_any_argument_gets_it() -> None:
    class Mine(ww.Sinusoidal):
        def __init__(self, dim: int, **settings: int) -> None:
            super().__init__(dim)
            self.settings = settings

    assert Mine(8, max_len=5).settings == {"max_len": 5}
