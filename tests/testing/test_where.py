"""check_where on whole layers: sound ones pass every law, and a broken scheme fails the law that it breaks."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import whatwhere as ww
from tests.laws.cases import DIM, HEADS, MAX_LENGTH, Case, each, varied
from tests.laws.test_teeth import Bias, Input, Turn, by_distance, by_order, by_slot, rotary_angles
from whatwhere.kernels.toeplitz import toeplitz
from whatwhere.testing import check_where
from whatwhere.where.frequencies import inverse_frequencies, sinusoid
from whatwhere.where.score_bias import DistanceBias

from .reports import failed, notes


class Map(Turn):
    """A rotary map by a formula of the positions, in the dtype of the queries."""

    def map_query(self, q: Tensor, bound: tuple[Tensor, ...]) -> Tensor:
        return super().map_query(q, bound).to(q.dtype)


class Writing(Map):
    def map_query(self, q: Tensor, bound: tuple[Tensor, ...]) -> Tensor:
        return q.copy_(super().map_query(q, bound))


class Slopes(ww.ScoreBias):
    """A learned slope for each head, which a detach() cuts off from its gradient."""

    def __init__(self, cut: bool) -> None:
        super().__init__()
        self.num_heads, self.cut, self.weight = HEADS, cut, nn.Parameter(torch.linspace(-0.5, -0.1, HEADS))

    def bind(self, queries, keys, **content):
        slopes = self.weight.detach() if self.cut else self.weight
        return lambda b, h, i, j: slopes[h] * by_distance(queries, keys, b, h, i, j)


class Ahead(ww.ScoreBias):
    """The score of each query with the key behind the one that is meant."""

    by_content = causal_only = True

    def __init__(self) -> None:
        super().__init__()
        self.num_heads = HEADS

    def bind(self, queries, keys, *, q=None, k=None, **content):
        scores = (q @ k.repeat_interleave(HEADS // k.shape[1], dim=1).mT).roll(-1, dims=-1)
        return lambda b, h, i, j: scores[b, h, i, j]


class Stored(Input):
    """Sinusoids of frequencies that are a buffer."""

    def __init__(self) -> None:
        super().__init__(lambda p: self.encode(p.index[0][..., None] * self.frequencies.float()))
        self.register_buffer("frequencies", inverse_frequencies(DIM).float())

    def encode(self, angles: Tensor) -> Tensor:
        return torch.cat([angles.sin(), angles.cos()], dim=-1)


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


def counting_padding(p: ww.Positions) -> Tensor:
    """Count in each document, where padding is of the first one."""
    if p.segment is None:
        return sinusoid(p.index[0], DIM)
    document = p.segment.clamp(min=0)
    same = document[:, :, None] == document[:, None]
    return sinusoid(p.index[0].gather(1, same.long().argmax(-1)) + same.tril(-1).sum(-1), DIM)


def from_zero_where_alone(p: ww.Positions) -> Tensor:
    return sinusoid(p.index[0] * (p.tokens > 1), DIM)


def remembering() -> Callable[[ww.Positions], Tensor]:
    """Keep the vectors of the first call with as many tokens."""
    kept: dict[int, Tensor] = {}
    return lambda p: kept.setdefault(p.tokens, sinusoid(p.index[0], DIM))


def at_the_end_where_alone(queries, keys, b, h, i, j) -> Tensor:
    """Queries are the last keys; a call of several forgets that."""
    return by_slot(queries, keys, b, h, i + (keys.tokens - 1 if queries.tokens == 1 else 0), j)


def undefined_at_padding(p: ww.Positions) -> Tensor:
    vectors = sinusoid(p.index[0], DIM)
    return vectors if p.segment is None else vectors.masked_fill(p.segment[..., None] < 0, torch.nan)


def reading_a_number(queries, keys, b, h, i, j) -> Tensor:
    return by_distance(queries, keys, b, h, i, j) * (1.0 if queries.index.max().item() < 1e9 else 2.0)


class Crossed(DistanceBias):
    """A bias that is another one where it is computed by blocks."""

    num_heads = HEADS

    def curve(self, device):
        return lambda head, distance: -0.5 * distance.abs()

    def by_blocks(self, positions, causal, size=None):
        return toeplitz(torch.zeros(HEADS, 2 * positions.tokens - 1), causal, size)


class Simple(DistanceBias):
    """A curve of one number: of the head, the distance or neither."""

    num_heads = HEADS

    def __init__(self, formula: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.formula = formula

    def curve(self, device):
        return self.formula


CACHED = {"decoding", "chunks", "padded decoding"}
SHIFTED = {"relative", "relative far away"}
BROKEN = {
    "ignores segment": (lambda: Bias(by_order), {}, {"packing"}, "in each index begins at 0"),
    "counts padding": (lambda: Input(counting_padding), {}, {"left padding", "padded decoding"}, "padding has a slot"),
    "slots": (lambda: Bias(by_slot), {}, CACHED, "read in the place of positions.index"),
    "next()": (lambda: Input(from_zero_where_alone), {}, {"decoding", "padded decoding"}, "calls have 4, 1, 1, 1"),
    "chunks": (lambda: Bias(at_the_end_where_alone), {}, {"chunks"}, "calls have 4, 3, 2 tokens"),
    "state": (lambda: Input(remembering()), {}, {"call order", "decoding"}, "those of an earlier call"),
    "float16 angles": (lambda: Map(lambda p: rotary_angles(p).half().double()), {"relative": True}, SHIFTED, "narrow"),
    "float32 angles": (
        lambda: Map(lambda p: rotary_angles(p).float().double()), {"relative": True}, {"relative far away"}, "narrow",
    ),
    "gradients": (lambda: Slopes(cut=True), {}, {"gradient"}, "of score.weight is 0.00e+00, finite differences"),
    "later keys": (Ahead, {}, {"causal", "packing", "left padding", *CACHED}, "outputs before them moved"),
    "bfloat16": (Stored, {}, {"bfloat16"}, "a table of them may be rounded"),
    "float32 outputs": (lambda: Turn(rotary_angles), {}, {"bfloat16"}, "have outputs in torch.float32"),
    "writes": (lambda: Writing(rotary_angles), {}, {"input kept"}, "it writes into q"),
    "padding is NaN": (
        lambda: Input(undefined_at_padding), {}, {"finite", "left padding", "padded decoding"}, "beside padding are",
    ),
    "blocks": (Crossed, {}, {"engines"}, ""),
    "not relative": (lambda: Input(lambda p: sinusoid(p.index[0], DIM)), {"relative": True}, SHIFTED, ""),
    "relative": (lambda: Bias(by_distance), {"relative": False}, SHIFTED, "relative=False was passed"),
    "raises": (lambda: Bias(lambda *given: 1 / 0), {}, {"finite", "decoding"}, "raised ZeroDivisionError"),
}  # fmt: skip
"""Schemes, what is said of them, the laws that they break, and words of the reason."""
WHOLE = {"state", "raises"}
"""Those that break many laws, of which the table has some."""


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_scheme_fails_by_the_law_that_it_breaks(name: str) -> None:
    scheme, options, laws, words = BROKEN[name]
    report = check_where(lambda: ww.Where(scheme()), compile=False, **options)
    assert failed(report) >= laws if name in WHOLE else failed(report) == laws
    assert words in notes(report)


SOUND = {
    "map": (lambda: ww.Where(Map(rotary_angles)), {"relative": True}),
    "bias": (lambda: ww.Where(Bias(by_distance)), {"relative": True}),
    "learned bias": (lambda: ww.Where(Slopes(cut=False)), {"relative": True}),
    "bias by content and gates": (lambda: ww.Where(Wane(DIM, HEADS)), {"relative": True, "dim": DIM}),
    "of distance alone": (lambda: ww.Where(Simple(lambda head, distance: -0.5 * distance.abs())), {"relative": True}),
    "of the head alone": (lambda: ww.Where(Simple(lambda head, distance: -0.5 * head)), {"relative": True}),
    "a constant": (lambda: ww.Where(Simple(lambda head, distance: torch.ones(()))), {"relative": True}),
    "whole numbers": (lambda: ww.Where(Simple(lambda head, distance: -distance.abs())), {"relative": True}),
    "input": (lambda: ww.Where(Input(lambda p: sinusoid(p.index[0], DIM))), {"relative": False}),
    "window and sink": (lambda: ww.Where(ww.Rotary(8), window=3, sink=ww.Sink(3)), {"relative": True}),
    "one head": (lambda: ww.Where(ww.ALiBi(1), ww.Rotary(8)), {"relative": True}),
    "each head its keys": (lambda: ww.Where(ww.Rotary(8)), {"num_heads": 2, "key_heads": 2, "dim": 5}),
}


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_scheme_of_ones_own_passes(name: str) -> None:
    build, options = SOUND[name]
    report = check_where(build, compile=False, **options)
    report.require()
    assert {each.law for each in report.findings if each.outcome != "passes"} <= {"compile", *SHIFTED}


@pytest.mark.every_nth(5)
@each(slow=varied)
def test_the_schemes_of_the_catalogue_pass(case: Case) -> None:
    longest = case.row.tested_up_to if case.row.any_length else MAX_LENGTH
    check_where(case.build, dim=DIM, relative=case.row.relative or None, max_length=longest, compile=False).require()


@pytest.mark.compile
def test_the_compiler_is_tried_last() -> None:
    report = check_where(lambda: ww.Where(ww.Rotary(16), ww.ALiBi(4)), relative=True)
    report.require()
    assert {each.outcome for each in report.findings} == {"passes"}
    assert failed(check_where(lambda: ww.Where(Bias(reading_a_number)))) == {"compile"}


def test_a_table_is_checked_up_to_its_end() -> None:
    assert check_where(lambda: ww.Where(ww.Learned(DIM, max_length=512)), compile=False).passed


@pytest.mark.parametrize("end", [8, float("inf"), True, "512"])
def test_a_max_length_of_another_meaning_is_not_read(end: object) -> None:
    """Only check_where(max_length=) is refused below 64: an attribute of that name may be of the scheme's own."""

    def build() -> ww.Where:
        scheme = Input(lambda p: sinusoid(p.index[0], DIM))
        scheme.max_length = end
        return ww.Where(scheme)

    assert check_where(build, compile=False).passed


def test_a_report_names_the_law_with_numbers() -> None:
    report = check_where(lambda: ww.Where(Bias(by_slot)), compile=False)
    assert report["decoding"].line().endswith("where 1.5e-05 is allowed, first at position 4")
    assert report["decoding"].error > 1e-2
    wrong = check_where(lambda: ww.Where(Input(lambda p: torch.ones(1, p.tokens, DIM - 1))), compile=False)
    assert len(wrong.failed) == 13
    assert all(": it raised ShapeError: Input.forward returned (1, " in each.line() for each in wrong.failed)
    with pytest.raises(AssertionError, match="decoding: fails\n    One token at a time"):
        report.require()
