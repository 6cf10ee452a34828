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


def rotary_angles_in_float32(index: Tensor) -> Tensor:
    return index.float()[..., None] * inverse_frequencies(HEAD_DIM).float()


def rotary_angles_in_bfloat16(index: Tensor) -> Tensor:
    return rotary_angles(index).bfloat16().double()


def breaks(law: Callable, *arguments, match: str = "not (equal|close)") -> None:
    with pytest.raises(AssertionError, match=match):
        law(*arguments)


def test_the_frames_themselves_are_sound():
    """With the right formula in them, the broken schemes' frames keep the laws: what breaks is what was broken."""
    laws.logits_unmoved(Turn(rotary_angles), ww.positions(12), ww.positions(12, start=1_000_000))
    laws.norms_kept(Turn(rotary_angles), ww.positions(12))
    laws.permuting_positions_permutes_rows(Input(lambda p: sinusoid(p.index[0], DIM)), torch.tensor([0, 5, 900]))
    laws.inner_product_is_of_distance(Input(lambda p: sinusoid(p.index[0], DIM)), 17, [0, 999_000])
    small = model(case_of("score", lambda: Bias(by_distance)))
    laws.decoding_equals_prefill(small, ww.positions(6), 3)
    laws.packed_equals_separate(small, (2, 4))
    laws.padded_equals_unpadded(small, LEFT)


def test_law_1_bfloat16_rounds_a_buffer():
    stored = Input(lambda p: stored.table[p.index[0]].float())
    stored.register_buffer("table", sinusoid(torch.arange(16), DIM), persistent=False)
    breaks(laws.unchanged_by_bfloat16, ww.Where(input=stored), ww.positions(9))
    breaks(laws.state_is_as_declared, ww.Where(input=stored), False, match="a buffer is state")


def test_law_1_autocast_rounds_a_matrix_product():
    outer = Input(
        lambda p: (p.index[0, 0].float()[:, None] @ inverse_frequencies(2 * DIM).float()[None])[None].sin().float()
    )
    breaks(laws.unchanged_by_autocast, ww.Where(input=outer), ww.positions(9, start=1000))


def test_law_1_a_cache_remembers_its_first_caller():
    def build() -> ww.Where:
        kept = {}

        def remember(p: ww.Positions) -> Tensor:
            return kept.setdefault(p.tokens, sinusoid(p.index[0], DIM)).to(p.device)

        return ww.Where(input=Input(remember))

    breaks(laws.unchanged_by_callers, build, ww.positions(3, start=2))


@pytest.mark.compile
def test_law_1_compiling_a_formula_of_the_length():
    """A length that is looked at as a number is compiled anew each time."""
    even = Input(lambda p: torch.full((1, p.tokens, DIM), 1.0 if p.tokens in (5, 13) else 2.0 * (p.tokens in (6, 9))))
    layer = laws.OneLayer(ww.Where(input=even))
    breaks(
        laws.compiles_at_most_twice, lambda n: (torch.ones(1, n, DIM), ww.positions(n)), layer, (5, 6, 9, 13, 31),
        match="4 graphs",
    )  # fmt: skip


def test_law_2_slots_are_not_positions():
    breaks(laws.decoding_equals_prefill, model(case_of("score", lambda: Bias(by_slot))), ww.positions(6), 3)


def test_law_2_a_cache_that_forgets_too_much_or_too_little():
    class Shorter(ww.Window):
        def kept(self, keys):
            return super().kept(keys)[1:]

    class Longer(ww.Window):
        def kept(self, keys):
            return torch.arange(keys.tokens)

    for window, match in ((Shorter(3), "not close"), (Longer(3), "9 keys are kept, but no more than 3")):
        small = model(case_of("query_key", lambda: ww.Rotary(HEAD_DIM)))
        for block in small.blocks:
            block.where.window = window
        breaks(laws.decoding_with_forgetting_equals_prefill, small, ww.positions(9), 4, 3, match=match)


def test_law_3_slots_are_not_positions():
    small = model(case_of("score", lambda: Bias(by_order)))
    breaks(laws.packed_equals_separate, small, (2, 4))
    padded = model(case_of("input", lambda: Input(lambda p: sinusoid(torch.arange(p.tokens)[None], DIM))))
    breaks(laws.padded_equals_unpadded, padded, LEFT)


def test_law_3_the_longest_of_the_batch_decides_for_all():
    """What follows the length must follow that of each sequence."""

    class Longest(Turn):
        follows_length = True

        def bind(self, positions, lengths=None):
            return Turn(lambda index: rotary_angles(index) / lengths.max()).bind(positions)

    case = case_of("query_key", lambda: Longest(rotary_angles))
    breaks(laws.padded_equals_unpadded, model(case), LEFT)
    breaks(laws.packed_equals_separate, model(case), (2, 4))


def test_law_3_padding_that_is_nan_reaches_real_tokens():
    """A weight of zero does not remove NaN: 0 * NaN is NaN."""

    def undefined(p: ww.Positions) -> Tensor:
        real = torch.zeros(p.batch, p.tokens, DIM)
        return real if p.segment is None else real.masked_fill(p.segment[..., None] < 0, torch.nan)

    small = model(case_of("input", lambda: Input(undefined)))
    breaks(laws.padded_equals_unpadded, small, LEFT, match="not finite")


def test_law_4_numbers_made_at_construction():
    """A plain tensor, made in the constructor, stays on the meta device for ever."""

    def build() -> ww.Where:
        scale = torch.ones(DIM)
        return ww.Where(input=Input(lambda p: sinusoid(p.index[0], DIM) * scale.to(p.device)))

    with pytest.raises((AssertionError, NotImplementedError)):
        laws.materialized_equals_built(build, ww.positions(9))


def test_law_4_parameters_that_are_not_reset():
    class Forgetful(Input):
        def __init__(self) -> None:
            super().__init__(lambda p: self.weight[p.index[0]])
            self.weight = nn.Parameter(torch.randn(16, DIM))

        def reset_parameters(self) -> None:
            nn.init.zeros_(self.weight)

    breaks(laws.materialized_equals_built, lambda: ww.Where(input=Forgetful()), ww.positions(9))


def test_law_5_a_setting_that_is_ignored():
    wheres = [ww.Where(query_key=Turn(rotary_angles, factor)) for factor in (torch.ones_like, lambda a: a * 0 + 1)]
    breaks(laws.tell_apart, wheres, ww.positions(9), match="settings 0 and 1")


def test_law_6_declared_wrongly():
    breaks(laws.state_is_as_declared, ww.Where(input=ww.Learned(DIM, 8)), False, match="declared")
    breaks(laws.state_is_as_declared, ww.Where(input=ww.Sinusoidal(DIM)), True, match="declared")


def test_law_7_a_gradient_that_is_cut():
    cut = Input(lambda p: cut.weight[p.index[0]] + cut.weight[p.index[0]].detach().square(), dim=8)
    cut.weight = nn.Parameter(torch.randn(5, 8))
    breaks(laws.gradients_are_right, ww.Where(input=cut), ww.positions(3), 8, match="finite differences")


def test_law_8_a_row_that_depends_on_its_neighbors():
    summed = Input(lambda p: sinusoid(p.index[0], DIM).cumsum(1))
    breaks(laws.permuting_positions_permutes_rows, summed, torch.tensor([0, 5, 7, 900]))


def test_law_9_angles_in_float32():
    def single(p: ww.Positions) -> Tensor:
        angles = p.index[0].float()[..., None] * inverse_frequencies(DIM).float()
        return torch.cat([angles.sin(), angles.cos()], dim=-1)

    laws.inner_product_is_of_distance(Input(single), 17, [0, 1])
    breaks(laws.inner_product_is_of_distance, Input(single), 17, [0, 999_000])


@pytest.mark.parametrize(("angles", "shift"), [(rotary_angles_in_float32, 1_000_000), (rotary_angles_in_bfloat16, 300)])
def test_law_10_rounded_angles(angles, shift):
    breaks(laws.logits_unmoved, Turn(angles), ww.positions(12), ww.positions(12, start=shift), match="moved by")


def test_law_11_a_length_that_grows():
    breaks(laws.norms_kept, Turn(rotary_angles, lambda angles: 1 + 1e-4 * angles), ww.positions(12))


@pytest.mark.compile
def test_law_12_a_formula_that_depends_on_the_caller():
    """The dense table evaluates a formula on axes, FlexAttention on single numbers."""
    two_faced = Bias(lambda queries, keys, b, h, i, j: 1.0 * (i - j) * i.dim() + 0.0 * (b + h))
    breaks(laws.engines_agree, model(case_of("score", lambda: two_faced)), ww.positions(7), "flex")


def test_law_13_absolute_but_declared_relative():
    squared = Bias(lambda queries, keys, b, h, i, j: (queries.index[0, b, i] * 0.01 * keys.index[0, b, j]) + 0.0 * h)
    breaks(laws.relative_iff_declared, ww.Where(score=squared), True, 9, 20, match="moves the output")
    breaks(laws.relative_iff_declared, ww.Where(score=ww.ALiBi(HEADS)), False, 9, 20, match="moves the output")


def test_law_14_overflow_and_merged_distances():
    """ALiBi as slope times key position, in the dtype of the queries: the form that circulates."""

    class Circulating(nn.Module):
        num_heads, causal_only = 2, False

        def forward(self, positions, keys=None, causal=False, dtype=None):
            table = torch.tensor([0.5, 0.25])[:, None, None] * (keys.index[0] - positions.index[0].max())
            return table[None].to(dtype)

    class FromKeys(Circulating):
        def forward(self, positions, keys=None, causal=False, dtype=None):
            return (torch.ones(2)[:, None, None] * keys.index[0])[None].to(dtype)

    breaks(laws.finite_at, Circulating(), 1_000_000, torch.float16, match="not finite")
    laws.finite_at(Circulating(), 1_000_000, torch.bfloat16)
    breaks(laws.distinct_over, FromKeys(), 300, torch.bfloat16, match="merges")
    breaks(laws.distinct_over, ww.ALiBi(12), 256, torch.bfloat16, match="merges")
