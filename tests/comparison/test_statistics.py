"""Paired differences: the test against enumeration by hand and simulated data, and what is said of few seeds."""

import itertools
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import ttest_rel

from whatwhere.comparison import OwnScores, paired_differences, read_results
from whatwhere.comparison.statistics import (
    PairedDifferences,
    _intervals,
    detectable,
    holm,
    seeds_needed,
    seeds_sentence,
    sign_flip_test,
)
from whatwhere.errors import SettingError
from whatwhere.records import Missing
from whatwhere.report.comparison_sentences import headline, methods_sentence
from whatwhere.report.paper import write_tables

from . import made_up


def differences(folder: Path, length: int | None = 32, **more: Any) -> PairedDifferences:
    computed = paired_differences(read_results(folder), length, **more)
    assert isinstance(computed, PairedDifferences)
    return computed


def enumerated(gains: Any) -> float:
    """Return the share of sign patterns whose sum is at least as far from 0; gains are whole numbers."""
    sums = [abs(sum(gain * sign for gain, sign in zip(gains, signs, strict=True)))
            for signs in itertools.product((1, -1), repeat=len(gains))]  # fmt: skip
    return sum(each >= abs(sum(gains)) for each in sums) / len(sums)


@pytest.mark.parametrize("seeds", [2, 3, 5, 6, 9])
def test_p_values_are_those_of_all_sign_patterns(seeds: int) -> None:
    gains = np.random.default_rng(seeds).integers(-9, 10, (40, seeds))
    for scale in (1.0, 0.1, 1e-4):  # 0.1 and 1e-4 are rounded, and so would be sums that should be equal
        np.testing.assert_allclose(sign_flip_test(scale * gains), [enumerated(row.tolist()) for row in gains], rtol=0)


@pytest.mark.parametrize("lengths", [(8,), (4, 8, 12)])
@pytest.mark.parametrize(("count", "seeds"), [(150, 8), (750, 9), (50_000, 14)])
@pytest.mark.parametrize("precision", [np.float32, np.float64])
def test_differences_of_counts_are_exact(precision: type, count: int, seeds: int, lengths: tuple[int, ...]) -> None:
    """Accuracies are counts divided by all; earlier versions rounded them to float32, so did many loops of others."""
    rng = np.random.default_rng(seeds)
    for _ in range(5):
        right = rng.integers(count // 3, count // 2, (seeds, len(lengths))) + rng.integers(-3, 6, (2, seeds, 1))
        shares = (right.astype(precision) / precision(count)).astype(float).tolist()
        scores = {
            name: {seed: dict(zip(lengths, run, strict=True)) for seed, run in enumerate(runs)}
            for name, runs in zip("ab", shares, strict=True)
        }
        own = OwnScores(scores, "counts", longest_trained=12, measure="accuracy", higher_is_better=True)
        found = paired_differences(own, None)
        assert isinstance(found, PairedDifferences)
        (pair,) = found.pairs
        gains = (right[0] - right[1]).sum(axis=-1) * (1 if pair.first == "a" else -1)
        assert (pair.p, pair.ahead) == (enumerated(gains.tolist()), (gains > 0).sum())
        assert (pair.effect is None) == (pair.interval is None) == (np.ptp(gains) == 0)


def test_equal_gains_of_rounded_counts_have_neither_interval_nor_effect() -> None:
    """Each scheme has three right answers more than the other, of 750 in float32."""
    right = np.arange(401, 410)
    scores = {name: {seed: {8: float(np.float32(n) / np.float32(750))} for seed, n in enumerate(right + more)}
              for name, more in (("a", 3), ("b", 0))}  # fmt: skip
    own = OwnScores(scores, "counts", longest_trained=8, measure="accuracy", higher_is_better=True)
    found = paired_differences(own, 8)
    assert isinstance(found, PairedDifferences)
    assert len(set(found.pairs[0].gains)) > 1, "in float32 they are not equal"
    assert (found.pairs[0].interval, found.pairs[0].effect) == (None, None)


def test_losses_of_float64_are_compared_as_such() -> None:
    wide = {name: [1e6 + n / 100 + seed / 1000 for seed in range(6)] for n, name in enumerate("ab")}
    narrow = {name: [1e6 + n / 16] * 6 for n, name in enumerate("ab")}  # neighbors in float32
    far = {"a": [0.0] * 6, "b": [0.93, 0.2, 0.33, 0.31, 0.71, 0.28]}  # whose sum depends on the order by 2 ulp
    for losses, lengths, ahead, p in (
        (wide, [8], 6, 2 / 64),
        (narrow, [8], 0, 1.0),
        (narrow, [7, 8], 0, 1.0),
        (far, [8], 6, 2 / 64),
    ):
        scores = {
            name: {seed: {n: x + (8 - n) / 16 for n in lengths} for seed, x in enumerate(each)}
            for name, each in losses.items()
        }
        own = OwnScores(scores, "mine", 8, "perplexity", higher_is_better=False)
        found = paired_differences(own, None)
        assert isinstance(found, PairedDifferences)
        assert (found.pairs[0].ahead, found.pairs[0].p) == (ahead, p)


def test_more_seeds_than_can_be_enumerated_take_random_patterns() -> None:
    gains = np.random.default_rng(0).normal(0.45, 1, (3, 17))
    sums = np.zeros((1, 3))
    for gain in gains.T:  # 2^17 patterns, one seed after the other
        sums = np.concatenate([sums + gain, sums - gain])
    exact = (np.abs(sums) >= np.abs(gains.sum(axis=1)) - 1e-9).mean(axis=0)
    np.testing.assert_allclose(sign_flip_test(gains), exact, atol=0.02)
    assert (sign_flip_test(gains) == sign_flip_test(gains)).all(), "the patterns have a fixed seed"


def test_holm_is_the_closed_test_of_bonferroni() -> None:
    for p in np.random.default_rng(2).uniform(0, 0.4, (20, 5)):
        subsets = [s for size in range(1, 6) for s in itertools.combinations(range(5), size)]
        closed = [min(1.0, max(len(s) * p[list(s)].min() for s in subsets if n in s)) for n in range(5)]
        np.testing.assert_allclose(holm(p), closed)


def test_as_many_seeds_are_needed_as_give_a_significant_least_p() -> None:
    for family in (1, 2, 6, 10, 78, 406):
        needed = seeds_needed(family)
        for seeds, reached in ((needed - 1, False), (needed, True)):
            best = sign_flip_test(np.ones((1, seeds)))
            assert (holm(np.concatenate([best, np.ones(family - 1)]))[0] <= 0.05) == reached
    assert seeds_needed(0) == seeds_needed(1)


@pytest.mark.parametrize(("family", "seeds"), [(1, 6), (1, 8), (1, 12), (4, 8), (10, 9), (10, 12)])
def test_detectable_differences_are_found_in_four_of_five_comparisons(family: int, seeds: int) -> None:
    mean = detectable(seeds, family)
    assert mean is not None
    gains = np.random.default_rng(4).normal(mean, 1.0, (1000, seeds))
    assert (sign_flip_test(gains) <= 0.05 / family).mean() == pytest.approx(0.8, abs=0.06)
    assert detectable(seeds_needed(family) - 1, family) is None


def test_what_seeds_can_show_is_said_before_they_run() -> None:
    assert seeds_sentence(1, 9) == ""
    assert "against none: 3 seeds cannot show that any differ. 8 can." in seeds_sentence(5, 3, "none")
    assert "9 can; 8 if all" in seeds_sentence(5, 8)
    assert "4 schemes against none: 8 seeds show a difference of " in seeds_sentence(5, 8, "none")


@pytest.mark.parametrize("seeds", [5, 6, 10, 20])
def test_intervals_contain_the_mean_as_often_as_is_said(seeds: int) -> None:
    rng, draws = np.random.default_rng(3), 4000

    def inside(gains: np.ndarray, mean: float) -> float:
        return float(
            np.mean([each is not None and each.low <= mean <= each.high for each in _intervals(gains, 0 * gains)])
        )

    margin = 3 * np.sqrt(0.05 * 0.95 / draws)
    assert abs(inside(rng.normal(0.1, 0.3, (draws, seeds)), 0.1) - 0.95) < margin
    # The accuracies of two schemes on 500 sequences, whose seeds differ by more than that: not normal, yet symmetric.
    accuracies = rng.binomial(500, rng.uniform(0.6, 0.9, (2, draws, seeds))) / 500
    assert inside(accuracies[0] - accuracies[1], 0.0) > 0.95 - 0.02
    assert abs(inside(rng.exponential(size=(draws, seeds)), 1.0) - {5: 0.88, 6: 0.89, 10: 0.90, 20: 0.92}[seeds]) < 0.02


def test_an_interval_is_that_of_the_paired_t_test() -> None:
    gains = np.array([[0.3, 0.1, 0.4, 0.1, 0.5], [-0.2, 0.0, 0.1, 0.3, 1.1]])
    for row, found in zip(gains, _intervals(gains, 0 * gains), strict=True):
        expected = ttest_rel(row, np.zeros(5)).confidence_interval(0.95)
        assert found is not None
        np.testing.assert_allclose((found.low, found.high), expected)
    assert _intervals(np.array([[1.0, 2.0, 3.0, 4.0]]), np.zeros((1, 4))) == [None], "four seeds are too few"
    assert _intervals(np.ones((2, 5)), np.zeros((2, 5))) == [None, None], "equal gains have no interval"
    assert _intervals(np.ones((0, 6)), np.ones((0, 6))) == []


def test_pairs_of_a_comparison(tmp_path: Path) -> None:
    scores = {"none": [0.5, 0.6, 0.7, 0.5, 0.6, 0.7], "alibi": [0.6, 0.8, 0.8, 0.7, 0.7, 0.9]}
    (pair,) = (computed := differences(made_up.scored_folder(tmp_path, 32, scores))).pairs
    assert (pair.first, pair.second, pair.ahead, pair.outcome) == ("alibi", "none", 6, "better")
    np.testing.assert_allclose(pair.gains, [0.1, 0.2, 0.1, 0.2, 0.1, 0.2])
    assert (pair.p, pair.p_holm) == (2 / 64, 2 / 64)
    assert pair.mean == pytest.approx(0.15)
    assert pair.interval is not None
    # t of five degrees of freedom is 2.5706 at 97.5 %; the standard deviation is 0.05 * sqrt(6 / 5).
    reach = 2.5706 * 0.05 * math.sqrt(6 / 5) / math.sqrt(6)
    assert (pair.interval.low, pair.interval.high) == pytest.approx((0.15 - reach, 0.15 + reach), rel=1e-4)
    # Hedges and Olkin's table: the correction for five degrees of freedom is 0.8408.
    assert pair.effect == pytest.approx(0.8408 * 0.15 / np.std([0.1, 0.2] * 3, ddof=1), rel=1e-4)
    assert (computed.seeds, computed.family, computed.seeds_needed) == (tuple(range(6)), 1, 6)
    assert computed.enough_seeds


def test_of_a_loss_the_lower_is_better(tmp_path: Path) -> None:
    folder = made_up.made_up_folder(tmp_path, "text", ("none", "alibi"), seeds=2)
    made_up.set_scores(folder, 256, {"none": [2.0, 2.5], "alibi": [2.25, 2.25]})
    (pair,) = differences(folder, 256).pairs
    assert (pair.first, pair.gains, pair.ahead, pair.mean, pair.effect) == ("none", (0.25, -0.25), 1, 0.0, None)


def test_too_few_seeds_are_a_finding(tmp_path: Path) -> None:
    five = {"none": [0.1] * 5, "alibi": [0.2, 0.3, 0.2, 0.3, 0.2]}
    computed = differences(made_up.scored_folder(tmp_path / "five", 32, five))
    assert [pair.outcome for pair in computed.pairs] == ["too few seeds"]
    assert (computed.enough_seeds, computed.seeds_needed) == (False, 6)
    six = {name: [*values, values[0]] for name, values in five.items()} | {"rotary": [0.1] * 6}
    computed = differences(folder := made_up.scored_folder(tmp_path / "six", 32, six))
    assert {pair.outcome for pair in computed.pairs} == {"too few seeds"}, "six suffice for one pair, not for three"
    assert (computed.family, computed.seeds_needed) == (3, 7)
    computed = differences(folder, against="alibi")
    assert [(pair.first, pair.second) for pair in computed.pairs] == [("alibi", "none"), ("alibi", "rotary")]
    assert (computed.family, computed.seeds_needed, computed.against) == (2, 7, "alibi")


def of_settings(folder: Path, against: str | None = None) -> Path:
    """Make results of two schemes in two settings: at 32 the setting that was not chosen is the better one."""
    scores = {"none": [0.5] * 6, "none@dim=16": [0.9] * 6, "alibi": [0.8] * 6, "alibi@dim=16": [0.6] * 6}
    losses = {"none": 0.1, "none@dim=16": 0.2, "alibi": 0.4, "alibi@dim=16": 0.3}
    request = {"files": [], "tokenizer": None, "start": None, "modules": [], "against": against}
    request |= {"vary": {"dim": [64, 16]}}

    def choose(data: dict[str, Any]) -> None:
        names = {"none": "none", "alibi": "alibi@dim=16"}
        data["request"] = request
        data["choices"] = [
            {"scheme": scheme, "chosen": name, "losses": {n: x for n, x in losses.items() if n.startswith(scheme)}}
            for scheme, name in names.items()
        ]

    return made_up.change(made_up.scored_folder(folder, 32, scores), choose)


def test_of_each_scheme_the_chosen_setting_is_compared(tmp_path: Path) -> None:
    computed = differences(folder := of_settings(tmp_path))
    assert [(pair.first, pair.second) for pair in computed.pairs] == [("alibi@dim=16", "none")]
    assert (computed.family, computed.seeds_needed, computed.pairs[0].p_holm) == (1, 6, 2 / 2**6)
    assert differences(folder, against="alibi").against == "alibi@dim=16"
    assert read_results(of_settings(tmp_path / "b", "alibi")).against == "alibi@dim=16"
    diverged = made_up.change(of_settings(tmp_path / "c", "alibi@tied"), lambda data: data.update(choices=[]))
    assert read_results(diverged).against is None
    with pytest.raises(SettingError, match=r"'none@dim=16', or it is a setting that was not chosen\. It has: 'none', "):
        paired_differences(read_results(folder), 32, against="none@dim=16")
    # What is best at 32 of all settings is neither named as the best nor tested.
    assert "alibi@dim=16 has the best median" in (said := headline(read_results(folder)))
    assert "none@dim=16" not in said
    assert "one of 2 settings (dim): that of the least held-out loss" in methods_sentence(
        read_results(folder), computed
    )
    written = write_tables(read_results(folder), tmp_path / "tables")
    assert {"settings.md", "settings.tex", "settings.csv", "losses.csv"} <= set(written.files)
    rows = (tmp_path / "tables" / "settings.csv").read_text().splitlines()[1:]
    assert rows[:2] == ["none,none,0.1,true", "none,none@dim=16,0.2,false"]


def test_schemes_without_a_score_in_every_seed_are_left_out(tmp_path: Path) -> None:
    scores = {"none": [0.5, 0.6], "learned": [None, None], "alibi": [0.6, 0.5], "rotary": [0.5, None]}
    computed = differences(made_up.scored_folder(tmp_path, 32, scores))
    assert computed.left_out == ("learned", "rotary")
    assert [{pair.first, pair.second} for pair in computed.pairs] == [{"none", "alibi"}]
    computed = differences(made_up.scored_folder(tmp_path / "one", 32, {"alibi": [0.5]}))
    assert (computed.pairs, computed.family) == ((), 0)
    computed = differences(
        made_up.scored_folder(tmp_path / "in", None, {"alibi": [0.5, 0.7], "none": [0.75, 1.0]}), None
    )
    assert computed.pairs[0].gains == pytest.approx((0.25, 0.3))


def test_what_was_not_measured_is_refused(tmp_path: Path) -> None:
    results = read_results(made_up.made_up_folder(tmp_path, seeds=1))
    with pytest.raises(SettingError, match=r"length 9 was not tested; tested: \[1, 2"):
        paired_differences(results, 9)
    with pytest.raises(SettingError, match=r"has no scheme 'ropes'\. It has: 'none', 'sinusoidal'"):
        paired_differences(results, 32, against="ropes")


def test_without_scipy_there_is_a_reason_instead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.stats", None)
    computed = paired_differences(read_results(made_up.made_up_folder(tmp_path)), 32)
    assert isinstance(computed, Missing)
    assert "pip install 'whatwhere[compare]'" in computed.missing
