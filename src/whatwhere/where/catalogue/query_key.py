"""Rows of door 2."""

from typing import Any

from whatwhere.where.binding import Where
from whatwhere.where.catalogue.row import Scheme, head_dim
from whatwhere.where.query_key.rotary import Rotary


def _rotary(dim: int, num_heads: int, max_length: int, **options: Any) -> Where:
    return Where(query_key=Rotary(head_dim(dim, num_heads), **options))


ROWS = (
    Scheme(
        name="rotary",
        door="query_key",
        formula="q_i, k_j turned by p w_n in each pair of features,  w_n = theta^(-2n/head_dim)",
        paper="Su et al., RoFormer: Enhanced Transformer with Rotary Position Embedding",
        url="https://arxiv.org/abs/2104.09864",
        year=2021,
        used_by=("Llama", "Qwen", "Mistral", "GPT-NeoX"),
        build=_rotary,
        relative=True,
        variants=(
            {"interleaved": True},
            {"rotary_dim": 8},
            {"rotary_dim": 8, "interleaved": True},
            {"theta": 500_000.0},
        ),
    ),
)
