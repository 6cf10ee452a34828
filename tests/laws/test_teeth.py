"""The laws have teeth: for each there is a scheme, broken on purpose, that fails it."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import whatwhere as ww
from whatwhere.where.frequencies import inverse_frequencies, sinusoid

from . import laws
from .cases import DIM, HEADS, Case
from .model import HEAD_DIM, model

LEFT = torch.tensor([[1, 1, 1, 1, 1, 1], [0, 0, 1, 1, 1, 1]], dtype=torch.bool)


class Input(ww.InputEncoding):
    """An input encoding made of a formula (positions -> vectors)."""

    def __init__(self, formula: Callable[[ww.Positions], Tensor], dim: int = DIM) -> None:
        super().__init__()
        self.formula, self.dim = formula, dim

    def forward(self, positions) -> Tensor:
        return self.formula(ww.Where().at(positions).queries)


class Turn(ww.QueryKeyMap):
    """A rotary map whose angles and length are a formula's."""

    def __init__(self, angles: Callable[[Tensor], Tensor], factor: Callable[[Tensor], Tensor] = torch.ones_like):
        super().__init__()
        self.head_dim, self.angles, self.factor = HEAD_DIM, angles, factor

    def bind(self, positions):
        angles = self.angles(positions.index[0])[:, None]
        size = self.factor(angles)
        return (angles.cos() * size).float(), (angles.sin() * size).float()

    def map_query(self, q, bound):
        cos, sin = bound
        a, b = q.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)

    def map_key(self, k, bound):
        return self.map_query(k, bound)


class Bias(ww.ScoreBias):
    """A score bias made of a formula: (queries, keys, batch, head, query_slot, key_slot) -> number."""

    def __init__(self, formula: Callable[..., Tensor], num_heads: int = HEADS) -> None:
        super().__init__()
        self.formula, self.num_heads = formula, num_heads

    def bind(self, queries, keys, *, q=None, k=None, gates=None, causal=True):
        return lambda b, h, i, j: self.formula(queries, keys, b, h, i, j)


def case_of(door: str, build: Callable[[], nn.Module], **facts) -> Case:
    row = replace(ww.catalogue["alibi"], name="broken", door=door, **facts)
    return Case(replace(row, build=lambda dim, num_heads, max_length: ww.Where(**{door: build()})))


def by_slot(queries, keys, b, h, i, j) -> Tensor:
    return -0.5 * (i - j).abs() + 0 * h


def by_order(queries, keys, b, h, i, j) -> Tensor:
    """As if the place in the sequence were the position: wrong for packed documents only where it is absolute."""
    return -0.5 * keys.order[b % keys.batch, j].cos() + 0 * (h + i)


def by_distance(queries, keys, b, h, i, j) -> Tensor:
    return -0.5 * (queries.index[0, b % queries.batch, i] - keys.index[0, b % keys.batch, j]) + 0.0 * h


def rotary_angles(index: Tensor) -> Tensor:
    return index.double()[..., None] * inverse_frequencies(HEAD_DIM)


def breaks(law: Callable, *arguments, match: str = "not (equal|close)") -> None:
    with pytest.raises(AssertionError, match=match):
        law(*arguments)


def test_law_1_bfloat16_rounds_a_buffer():
    stored = Input(lambda p: stored.table[p.index[0]].float())
    stored.register_buffer("table", sinusoid(torch.arange(16), DIM), persistent=False)
    breaks(laws.unchanged_by_bfloat16, ww.Where(input=stored), ww.positions(9))
    breaks(laws.state_is_as_declared, ww.Where(input=stored), False, match="a buffer is state")


def test_law_2_slots_are_not_positions():
    breaks(laws.decoding_equals_prefill, model(case_of("score", lambda: Bias(by_slot))), ww.positions(6), 3)


def test_law_3_slots_are_not_positions():
    small = model(case_of("score", lambda: Bias(by_order)))
    breaks(laws.packed_equals_separate, small, (2, 4))
    padded = model(case_of("input", lambda: Input(lambda p: sinusoid(torch.arange(p.tokens)[None], DIM))))
    breaks(laws.padded_equals_unpadded, padded, LEFT)


def test_law_6_declared_wrongly():
    breaks(laws.state_is_as_declared, ww.Where(input=ww.Learned(DIM, 8)), False, match="declared")
    breaks(laws.state_is_as_declared, ww.Where(input=ww.Sinusoidal(DIM)), True, match="declared")


def test_law_7_a_gradient_that_is_cut():
    cut = Input(lambda p: cut.weight[p.index[0]] + cut.weight[p.index[0]].detach().square(), dim=8)
    cut.weight = nn.Parameter(torch.randn(5, 8))
    breaks(laws.gradients_are_right, ww.Where(input=cut), ww.positions(3), 8, match="finite differences")
