"""A scheme of one's own that the library does not know: learned, gated, and dependent on queries and keys.

It is not a row of the catalogue, and yet every law that is chosen by its facts holds: doors carry it, not a list.
"""

import pytest
import torch
from torch import Tensor, nn

import whatwhere as ww
from whatwhere.where.catalogue import Scheme

from . import laws
from .cases import DIM, LEFT, Case
from .model import attend, draw, model

ENGINES = ["sdpa", pytest.param("flex", marks=pytest.mark.compile)]


class Wane(ww.ScoreBias):
    """A bias that falls with the distance, faster for a larger gate of the key and a smaller score of query and key.

    score(h, i, j) += -(i - j) sigmoid(<w_h, x_j>) sigmoid(-<q_i, k_j>)
    """

    by_content = True
    causal_only = True

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.weight = nn.Parameter(torch.empty(num_heads, dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=self.weight.shape[1] ** -0.5)

    def gates(self, x: Tensor) -> Tensor:
        return (x @ self.weight.mT).sigmoid().mT

    def bind(self, queries, keys, *, q=None, k=None, gates=None, causal=True):
        at_query, at_key = queries.single_axis("Wane"), keys.single_axis("Wane")
        score = (q @ k.repeat_interleave(q.shape[1] // k.shape[1], dim=1).mT).sigmoid()

        def element(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            distance = at_query[b % len(at_query), i] - at_key[b % len(at_key), j]
            return -distance * gates[b, h, j] * (1 - score[b, h, i, j])

        return element


CASE = Case(
    Scheme(
        name="own",
        door="score",
        formula="score(h, i, j) += -(i - j) sigmoid(<w_h, x_j>) sigmoid(-<q_i, k_j>)",
        paper="none",
        url="https://example.org",
        year=2026,
        used_by=(),
        build=lambda dim, num_heads, max_length: ww.Where(score=Wane(dim, num_heads)),
        learned=True,
        relative=True,
        causal_only=True,
    )
)


def test_decoding_packing_and_padding():
    small = model(CASE)
    laws.decoding_equals_prefill(small, ww.positions(8), first=3)
    laws.decoding_equals_prefill(small, ww.Positions.from_mask(LEFT), first=5)
    laws.packed_equals_separate(small, (3, 1, 5))
    laws.padded_equals_unpadded(small, LEFT)


@pytest.mark.parametrize("engine", ENGINES)
def test_engines_agree(engine):
    laws.engines_agree(model(CASE), ww.Positions.packed([3, 4]), engine)


def test_state_gradients_and_distances():
    laws.state_is_as_declared(CASE.build(), learned=True)
    laws.gradients_are_right(CASE.build(dim=8, num_heads=2), ww.Positions.packed([2, 1]), dim=8)
    laws.relative_iff_declared(CASE.build(), True, n=9, shift=1000)


def test_what_a_scheme_declares_is_used():
    with pytest.raises(ww.errors.SettingError, match="Wane supports causal attention only"):
        attend(CASE.build(), ww.positions(4), causal=False)
    with pytest.raises(ww.errors.DoorError, match="Wane depends on queries and keys"):
        CASE.build().score(ww.positions(4))


@pytest.mark.compile
def test_it_compiles():
    layer = laws.OneLayer(CASE.build(num_heads=2))
    laws.compiles_at_most_twice(lambda n: (draw(2, n, DIM, seed=n), ww.positions(n, start=3)), layer, (5, 6, 9, 13, 31))
