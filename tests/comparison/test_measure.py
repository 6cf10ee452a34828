"""Measures: scores of hand-made answers, the shift test, and snapshots of hand-made token tables, against NumPy."""

from collections.abc import Callable
from itertools import combinations
from math import log
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import whatwhere as ww
from whatwhere.comparison import DEMO_SCHEMES, measure
from whatwhere.comparison.model import Transformer
from whatwhere.comparison.results import (
    ParameterCount,
    RunResult,
    Scores,
    Shift,
    ShiftSummary,
    Spread,
    Statistics,
    TableSnapshot,
    TokenCosines,
    summarize,
)
from whatwhere.comparison.settings import Settings, make_settings
from whatwhere.comparison.tasks import Expressions, Recall, Text, held_out
from whatwhere.comparison.train import build

SHIFTS = (0, 1, 2, 4, 8, 16, 32, 60)


def small_settings(**given: Any) -> Settings:
    small = {"dim": 32, "heads": 4, "feedforward": 16, "test_sequences": 60, "device": "cpu"}
    return make_settings("expressions", None, **small | given)


class Stub(Transformer):
    """A model whose logits are given by hand."""

    def __init__(self, answer: Callable[[Tensor, ww.Positions], Tensor]) -> None:
        nn.Module.__init__(self)
        self.answer = answer
        self.batches: list[int] = []

    def forward(self, ids: Tensor, at: int | None = None, p: ww.Positions | None = None) -> Tensor:
        assert p is not None
        self.batches.append(len(ids))
        return self.answer(ids, p)


def says(tokens: Tensor, vocab_size: int = 20) -> Tensor:
    return nn.functional.one_hot(tokens, vocab_size).float()


def test_scores_of_a_model_that_always_repeats_the_first_digit() -> None:
    task, settings = Expressions(), small_settings(test_sequences=300)
    result = measure.scores(Stub(lambda ids, _: says(ids[:, 2])), task, 4, settings)
    test_set, right, total = measure.evaluation_set(task, 4, settings), *(dict.fromkeys(task.groups, 0) for _ in "ab")
    rules = {"First": lambda d: d[0], "Second": lambda d: d[1], "Last": lambda d: d[-1], "Max": max, "Min": min}
    for ids in test_set.ids.tolist():
        operator, digits = task.tokens[ids[0]], [token - 2 for token in ids[2:-1:2]]
        total[operator] += 1
        right[operator] += rules[operator](digits) == digits[0]
    assert result["First"] == 1.0
    exact = {"all": sum(right.values()) / 300} | {name: right[name] / total[name] for name in task.groups}
    assert result == exact, "a share is the count divided by all, not rounded to float32"


def test_a_group_without_queries_has_no_score() -> None:
    result = measure.scores(Stub(lambda ids, _: says(ids[:, 1], 53)), Recall(), 1, small_settings(test_sequences=20))
    assert result == {"all": 1.0, "first third": 1.0, "middle third": None, "last third": None}


def test_a_loss_is_the_mean_of_minus_log_p_at_all_positions_and_in_the_last_quarter() -> None:
    task, settings = Text(bytes(range(256)) * 40, trained=(16,)), small_settings(test_sequences=30)

    def answer(ids: Tensor, _: ww.Positions) -> Tensor:
        """Know nothing but that 255 is unlikely; in the last quarter give the next byte half of all."""
        logits = torch.zeros(*ids.shape, 256)
        known = (ids[:, 12:] + 1) % 256
        logits[:, 12:] = logits[:, 12:].scatter(-1, known[..., None], log(255))
        return logits

    result = measure.scores(Stub(answer), task, 16, settings)
    assert result["last quarter"] == pytest.approx(log(2))
    assert result["all"] == pytest.approx((12 * log(256) + 4 * log(2)) / 16)


def test_the_test_set_is_the_same_each_time_and_shorter_where_sequences_are_long() -> None:
    settings = small_settings(test_sequences=1000)
    counts = {n: len(measure.evaluation_set(Expressions(), n, settings).ids) for n in (8, 32, 3000)}
    assert counts == {8: 1000, 32: 50_000 // 66, 3000: 20}
    assert torch.equal(*(measure.evaluation_set(Expressions(), 3, settings).ids for _ in range(2)))
    # They are read in parts, and none is lost.
    model = Stub(lambda ids, _: says(ids[:, 2]))
    measure.scores(model, Expressions(), 32, settings)
    assert sum(model.batches) == 757
    assert max(model.batches) * 66 <= 16_384


@pytest.mark.parametrize(
    ("size", "window", "lengths", "tokens"),
    [
        (800_000, 64, (128, 256, 512), 49_664),  # of at most 50,000: whole windows of 512
        (800_000, 16, (512,), 16_000 // 512 * 512),  # 1,000 sequences of 16
        (1_000_000, 16, (4096,), 20 * 4096),  # never fewer than 20
        (800_000, 64, (100, 150), 4800 * 10),  # a multiple of all three
        (300_000, 64, (97, 1009), 23 * 1009),  # which have none so small
        (100_000, 64, (128, 512), 7680),  # a fifth of the held-out tenth is left to validation
        (10_000, 64, (900,), 900),  # but for a test that needs it
    ],
)
def test_test_sets_of_text_have_equal_numbers_of_tokens(
    size: int, window: int, lengths: tuple[int, ...], tokens: int
) -> None:
    content = np.random.default_rng(0).integers(0, 256, size, np.uint8).tobytes()
    task, settings = Text(content, trained=(window,)), make_settings("text", lengths, test_sequences=1000)
    ends = []
    for length in (window, *lengths):
        ids = measure.evaluation_set(task, length, settings).ids
        assert tokens - length < ids.numel() <= tokens, "less than a window fewer"
        assert ids.numel() == tokens or tokens % np.lcm.reduce([window, *lengths])
        ends.append(content.index(bytes(ids[-1].tolist())) + length + 1)  # the last target
    # What is validated lies behind all of them; random windows occur once.
    for validated in measure.validation_sets(task, settings):
        assert min(content.index(bytes(row)) for row in validated.ids.tolist()) >= max(ends) - 1
        assert validated.ids.numel() <= 8192
    assert bool(measure.validation_sets(task, settings)) == (size != 10_000)


@pytest.mark.parametrize("task", [Expressions(), Expressions((2, 3), "encoder"), Recall()])
def test_no_sequence_is_both_tested_and_validated_or_trained(task: Expressions | Recall) -> None:
    settings = make_settings(task.name, [8, 16], test_sequences=200)
    found = measure.validation_sets(task, settings)
    tested = {tuple(row) for n in range(1, 17) for row in measure.evaluation_set(task, n, settings).ids.tolist()}
    validated = {tuple(row) for each in found for row in each.ids.tolist()}
    assert len(validated) > 20
    assert not validated & tested
    assert all(bool(held_out(each.ids).all()) for each in found), "training has no such target"
    assert all(task.answer(ids) == t for each in found for ids, t in zip(each.ids.tolist(), each.targets, strict=True))


def no_row(ids: Tensor, p: ww.Positions) -> Tensor:
    if p.max_length is not None and p.max_length > 12:
        raise ww.errors.PositionError("no row")
    return says(ids[:, 2])


def test_where_a_scheme_has_no_row_there_is_no_score() -> None:
    task = Expressions()
    assert measure.scores(Stub(no_row), task, 12, small_settings()) == dict.fromkeys(("all", *task.groups))
    assert measure.scores(Stub(no_row), task, 3, small_settings())["First"] == 1.0
    # Logits that are not finite are another matter.
    model = Stub(lambda ids, _: says(ids[:, 2]) * float("nan"))
    with pytest.raises(ww.errors.SettingError, match="logits are not finite"):
        measure.scores(model, Expressions(), 3, small_settings())


def test_the_shift_test_of_a_model_that_depends_on_absolute_position() -> None:
    """Right at 0, the worse the farther, and without rows from 9 on: every number is known."""
    task, settings = Expressions(), small_settings()
    test_set = measure.evaluation_set(task, task.shift_length, settings)
    right = {tuple(ids): target for ids, target in zip(test_set.ids.tolist(), test_set.targets.tolist(), strict=True)}

    def answer(ids: Tensor, p: ww.Positions) -> Tensor:
        start = int(p.index[0, 0, 0])
        if start > 8:
            raise ww.errors.PositionError("no row")
        targets = torch.tensor([right[tuple(row)] for row in ids.tolist()])
        return says(targets) - start * 0.75 * says(targets)

    result = measure.shift_test(Stub(answer), task, settings)
    assert tuple(result) == SHIFTS
    assert [result[s].score for s in SHIFTS] == [1.0, 1.0, 0.0, 0.0, 0.0, None, None, None]
    changes = [result[s].largest_logit_change for s in SHIFTS]
    assert changes == [0.0, 0.75, 1.5, 3.0, 6.0, None, None, None]


@pytest.mark.parametrize("scheme", [*DEMO_SCHEMES, "rotary+alibi", "sinusoidal/rotary"])
def test_only_absolute_schemes_depend_on_the_start(scheme: str) -> None:
    task, settings = Expressions(), small_settings(init=0.3)
    result = measure.shift_test(build(scheme, 0, task, settings), task, settings)
    assert result[0].largest_logit_change == 0
    parts = scheme.replace("/", "+").split("+")
    seen = [result[s].largest_logit_change for s in SHIFTS[1:]]
    if all(ww.catalogue[part].relative for part in parts):
        assert max(seen) < 1e-5
        assert {result[s].score for s in SHIFTS} == {result[0].score}
    else:
        assert min(change for change in seen if change is not None) > 1e-3
    # 3 arguments are 8 tokens, 6 are 14: a learned table holds them moved by 6 at most.
    rows_end = not all(ww.catalogue[part].any_length for part in parts)
    assert [change is None for change in seen] == [rows_end and s > 6 for s in SHIFTS[1:]]


def test_in_length_weighs_each_trained_length_equally() -> None:
    task = Expressions(trained=(1, 2, 4))
    scores: dict[int, Scores] = {1: {"all": 0.0}, 2: {"all": 0.5}, 4: {"all": 0.9}, 9: {"all": 0.0}}
    assert measure.in_length(scores, task) == pytest.approx(0.7)
    with pytest.raises(ww.errors.PositionError, match="build it for max_length rows"):
        measure.in_length(scores | {4: {"all": None}}, task)


def sampled(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.1, 0.5, (20, 32))


def with_table(table: np.ndarray, scheme: str = "none") -> Transformer:
    model = build(scheme, 0, Expressions(), small_settings())
    model.input.tokens.weight.data.copy_(torch.from_numpy(table))
    return model


def snapshot(table: np.ndarray, first: np.ndarray | None = None, scheme: str = "none") -> TableSnapshot:
    before = None if first is None else torch.from_numpy(first).float()
    result = measure.table_snapshot(with_table(table, scheme), Expressions(), small_settings(), 20, before)
    assert result is not None
    return result


def cosine(u: np.ndarray, v: np.ndarray) -> float:
    return float(u @ v / np.sqrt((u @ u) * (v @ v)))


def require_statistics(result: Statistics | None, values: np.ndarray) -> None:
    assert result is not None
    expected = values.mean(), values.std(), values.min(), values.max()
    assert (result.mean, result.std, result.min, result.max) == pytest.approx(expected, rel=1e-4)


def require_cosines(result: TokenCosines | None, table: np.ndarray) -> None:
    """The ids of the first tutorial: digits 2 to 11, First 12, Second 13, Last 14, Max 15, Min 16, brackets, comma."""
    assert result is not None
    assert result.max_min == pytest.approx(cosine(table[15], table[16]), abs=1e-6)
    assert result.first_last == pytest.approx(cosine(table[12], table[14]), abs=1e-6)
    for name, ids in {"digits": range(2, 12), "operators": range(12, 17), "syntax": range(17, 20)}.items():
        pairs = [cosine(table[a], table[b]) for a, b in combinations(ids, 2)]
        assert getattr(result, f"within_{name}") == pytest.approx(np.mean(pairs), abs=1e-6)


def test_a_snapshot_of_a_table() -> None:
    result = snapshot(table := sampled(0))
    require_statistics(result.table, table)
    require_cosines(result.cosines, table)
    assert (result.percent, result.number_line, result.change_cosines) == (20, None, None)
    first = 10 * sampled(1)  # of E, cosines are mostly those of the random table that it started from
    written = snapshot(first + table, first).change_cosines
    require_cosines(written, (first + table).astype(np.float32) - first.astype(np.float32))


def test_a_snapshot_after_adding_positions() -> None:
    table = sampled(1)
    ids = measure.evaluation_set(Expressions(), 6, small_settings()).ids.numpy()
    angle = np.arange(14)[:, None] * 10_000.0 ** (-np.arange(0, 32, 2) / 32)
    sinusoid = np.stack([np.sin(angle), np.cos(angle)], -1).reshape(14, 32)
    require_statistics(snapshot(table, scheme="sinusoidal").with_positions, table[ids] + sinusoid)
    assert [snapshot(table, scheme=name).with_positions for name in ("none", "rotary", "alibi")] == [None] * 3


def test_the_number_line_is_the_first_principal_component_of_how_the_digits_moved() -> None:
    table, first = sampled(2), sampled(3)
    table[2:12] += np.linspace(-1, 1, 10)[:, None] * sampled(4)[0]
    moves = (table.astype(np.float32) - first.astype(np.float32))[2:12].astype(np.float64)
    centered = moves - moves.mean(0)
    along = centered @ np.linalg.svd(centered)[2][0]
    expected = abs(np.corrcoef(along, np.arange(10))[0, 1])
    assert 0.1 < expected < 0.999
    assert snapshot(table, first).number_line == pytest.approx(expected, abs=1e-5)
    assert snapshot(first, first).number_line is None, "digits that did not move are on no line"


def made_up(score: float | None, change: float | None) -> RunResult:
    scores: dict[int, Scores] = {2: {"all": 0.5, "Max": score}}
    return RunResult("mine", 0, ParameterCount(7, 3, 2), 1, 1.0, 0.1, (), scores, 0.5, {1: Shift(score, change)})


def test_seeds_are_summarized_by_median_and_range() -> None:
    result = summarize([made_up(0.9, 3.0), made_up(0.2, 1.0), made_up(0.3, None)])
    assert result.scores[2] == {"all": Spread(0.5, 0.5, 0.5), "Max": Spread(0.3, 0.2, 0.9)}
    assert result.shift[1] == ShiftSummary(Spread(0.3, 0.2, 0.9), None)
    assert result.parameters.total == 7
