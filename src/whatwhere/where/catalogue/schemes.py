"""The entries of all schemes: none, and those of the input door, of the query_key door, and of the score door."""

from whatwhere.where.binding import Where
from whatwhere.where.catalogue.entry import Scheme
from whatwhere.where.catalogue.input import ENTRIES as _INPUT
from whatwhere.where.catalogue.query_key import ENTRIES as _QUERY_KEY
from whatwhere.where.catalogue.score import ENTRIES as _SCORE


def _none(dim: int, num_heads: int, max_length: int) -> Where:
    return Where()


ENTRIES = (
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
    *_INPUT,
    *_QUERY_KEY,
    *_SCORE,
)
