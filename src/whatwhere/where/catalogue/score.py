"""Rows of door 3."""

from whatwhere.where.binding import Where
from whatwhere.where.catalogue.row import Scheme, head_dim
from whatwhere.where.score.alibi import ALiBi


def _alibi(dim: int, num_heads: int, max_length: int) -> Where:
    head_dim(dim, num_heads)
    return Where(score=ALiBi(num_heads))


ROWS = (
    Scheme(
        name="alibi",
        door="score",
        formula="score(h, i, j) += -m_h |i - j|,  m_h = 2^(-8h/H)",
        paper="Press et al., Train Short, Test Long: Attention with Linear Biases",
        url="https://arxiv.org/abs/2108.12409",
        year=2022,
        used_by=("BLOOM", "MPT"),
        build=_alibi,
        relative=True,
        near=128,
    ),
)
