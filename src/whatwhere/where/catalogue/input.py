"""Rows of door 1, and the one that uses no door."""

from typing import Any

from whatwhere.where.binding import Where
from whatwhere.where.catalogue.row import Scheme
from whatwhere.where.input.learned import Learned
from whatwhere.where.input.sinusoidal import Sinusoidal


def _none(dim: int, num_heads: int, max_length: int) -> Where:
    return Where()


def _sinusoidal(dim: int, num_heads: int, max_length: int, **options: Any) -> Where:
    return Where(input=Sinusoidal(dim, **options))


def _learned(dim: int, num_heads: int, max_length: int, **options: Any) -> Where:
    return Where(input=Learned(dim, max_length, **options))


ROWS = (
    Scheme(
        name="none",
        door=None,
        formula="x_i = what(token_i)",
        paper="Haviv et al., Transformer Language Models without Positional Encodings Still Learn Positions",
        url="https://arxiv.org/abs/2203.16634",
        year=2022,
        used_by=("some layers of Llama 4, SmolLM3",),
        build=_none,
        relative=True,
    ),
    Scheme(
        name="sinusoidal",
        door="input",
        formula="x_i += (sin p w_0, cos p w_0, sin p w_1, ...),  w_n = theta^(-2n/dim)",
        paper="Vaswani et al., Attention Is All You Need",
        url="https://arxiv.org/abs/1706.03762",
        year=2017,
        used_by=("the original Transformer", "Transformer-XL", "fairseq"),
        build=_sinusoidal,
        variants=({"layout": "halves"}, {"layout": "tensor2tensor"}, {"theta": 500.0}),
    ),
    Scheme(
        name="learned",
        door="input",
        formula="x_i += P[p_i]",
        paper="Gehring et al., Convolutional Sequence to Sequence Learning",
        url="https://arxiv.org/abs/1705.03122",
        year=2017,
        used_by=("GPT-2", "BERT", "OPT"),
        build=_learned,
        learned=True,
        any_length=False,
    ),
)
