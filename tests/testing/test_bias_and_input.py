"""whatwhere.testing on biases and encodings: our own pass every law, and a broken one fails the law that it breaks."""

from functools import cache, partial

import numpy as np
import pytest
import torch
from torch import Tensor

import whatwhere as ww
from whatwhere import reference
from whatwhere.testing import check_bias, check_input_encoding
from whatwhere.where.frequencies import inverse_frequencies, sinusoid

from .reports import failed, notes

DIM, HEADS = 32, 6


# Biases


def of_slopes(slopes, rate=1.0):
    steep = rate * torch.tensor(slopes)[:, None, None]
    return lambda q, k: -steep * (q[:, None] - k).abs()


def of_keys(q, k, slopes=None):
    """Slope times key position, rounded to bfloat16 as a model in bfloat16 rounds it."""
    return (torch.tensor(slopes or AUTHORS)[:, None, None] * k.expand(len(q), -1)).bfloat16()


AUTHORS = reference.alibi_slopes(HEADS)
PLAIN = [2.0 ** (-8 * h / HEADS) for h in range(1, HEADS + 1)]
HALF = {"finite in float16"}
NEAR = {"near in float16", "near in bfloat16"}
BROKEN_ALIBI = {
    "nothing": (of_slopes(AUTHORS), set(), "no module was passed"),
    "own dtype": (
        lambda q, k, dtype=None: of_slopes(AUTHORS)(q, k).to(dtype or torch.float32),
        HALF,
        "head 4 returns -inf there",
    ),
    "plain power": (of_slopes(PLAIN), {"formula"}, "its slopes are 2 ** (-8 h / 6)"),
    "order": (of_slopes(AUTHORS[::-1]), {"formula"}, "heads are in another order: its head 0 is head 5"),
    "sign": (of_slopes(AUTHORS, -1.0), {"formula", *HALF}, "its sign is the opposite"),
    "divided": (of_slopes(AUTHORS, 0.125), {"formula"}, "every number is 0.125 times"),
    "of keys": (of_keys, {"relative", "relative far away", *HALF, *NEAR}, "which softmax cancels"),
    "of keys, plain": (
        lambda q, k: of_keys(q, k, PLAIN),
        {"formula", "relative", "relative far away", *HALF, *NEAR},
        "relative to the nearest key, head 0 returns -0.5 at distance 1; -0.25 is needed",
    ),
    "rounded": (
        lambda q, k: of_slopes(AUTHORS)(q, k) * (1 + 0.003 * (q[:, None] - k).sin()),
        {"formula"},
        "those of numbers rounded to bfloat16",
    ),
    "slots": (
        lambda q, k: of_slopes(AUTHORS)(torch.arange(len(q)), torch.arange(len(k))),
        {"formula", "decoding"},
        "relative to the nearest key, head 0 returns 0.25 at distance 1; -0.25 is needed",
    ),
    "top left": (
        lambda q, k: of_slopes(AUTHORS)(q - q[0], k),
        {"formula", "relative", "relative far away", "decoding", *NEAR},
        "",
    ),
    "integers": (lambda q, k: -(q[:, None] - k).expand(HEADS, -1, -1), None, "floating point is needed"),
    "masked": (lambda q, k: of_slopes(AUTHORS)(q, k).masked_fill(q[:, None] > k, -torch.inf), None, "not finite"),
    "shape": (lambda q, k: of_slopes(AUTHORS)(q, k)[None], None, "(heads, queries, keys) is needed"),
}


@pytest.mark.parametrize("name", BROKEN_ALIBI)
def test_a_broken_bias_fails_by_the_law_that_it_breaks(name):
    fn, laws, words = BROKEN_ALIBI[name]
    report = check_bias(fn, HEADS, expected="alibi")
    assert failed(report) == laws if laws is not None else failed(report)
    assert words in notes(report)


@pytest.mark.parametrize("num_heads", [8, 12])
@pytest.mark.parametrize("causal", [True, False])
def test_the_alibi_of_whatwhere_passes(num_heads, causal):
    alibi = ww.ALiBi(num_heads)
    report = check_bias(
        lambda q, k, dtype=None: alibi(q, k, dtype=dtype)[0], num_heads, expected="alibi", causal=causal, module=alibi
    )
    report.require()
    assert {finding.outcome for finding in report.findings} == {"passes"}


@pytest.mark.parametrize("name", [n for n, row in ww.catalogue.items() if row.door == "score"])
def test_every_bias_of_the_catalogue(name):
    """Against the reference, or itself where it has none here: the laws that need no formula are tried all the same."""
    row = ww.catalogue[name]
    torch.manual_seed(0)
    score = row.build(64, 4, 64).score
    if score.by_content:
        with pytest.raises((ww.errors.DoorError, ww.errors.SettingError)):
            check_bias(lambda q, k: None, 4, expected=score)
        return
    check_bias(
        lambda q, k, dtype=None: score(q, k, causal=score.causal_only, dtype=dtype)[0].detach(),
        4,
        expected=score if row.learned else name,
        relative=row.relative,
        causal=score.causal_only,
        near=row.distinct_up_to,
        module=score,
        max_length=row.tested_up_to + 1,
    ).require()


@pytest.mark.parametrize("bidirectional", [False, True])
def test_t5_and_its_broken_readings(bidirectional):
    torch.manual_seed(0)
    t5 = ww.T5(2, bidirectional=bidirectional, std=1.0)
    weight = t5.weight.detach().double().numpy()

    bucket = cache(partial(reference.t5_bucket, bidirectional=bidirectional))

    def table(q, k):
        return np.array([[[weight[bucket(int(i - j)), head] for j in k] for i in q] for head in range(2)])

    def checked(fn):
        return check_bias(fn, 2, expected=table, causal=not bidirectional, max_length=2001)

    checked(lambda q, k: t5(q, k, causal=not bidirectional)[0]).require()
    swapped = checked(lambda q, k: torch.from_numpy(table(k.numpy(), q.numpy())).mT)
    late = checked(lambda q, k: torch.from_numpy(table(q.numpy() + 1, k.numpy())))
    assert failed(swapped) == failed(late) == {"formula"}
    assert "distance is key minus query" in notes(swapped)
    assert "distances are one too large" in notes(late)
    if bidirectional:
        oneway = checked(lambda q, k: torch.from_numpy(table(q.numpy(), k.numpy())).masked_fill(q[:, None] < k, 0))
        assert "made for causal attention" in notes(oneway)


def test_a_bias_that_remembers_shapes():
    """Looking back only, it would be off by a number for each query, which is not a fault."""
    cache = {}
    report = check_bias(
        lambda q, k: cache.setdefault((len(q), len(k)), of_slopes(AUTHORS)(q, k)), HEADS, causal=False, max_length=2001
    )
    assert failed(report) == {"call order"}


def test_a_function_without_a_signature_is_checked():
    report = check_bias(torch.add, 1, max_length=2001)
    assert "it raised RuntimeError: The size of tensor a (20)" in report["finite"].note


def test_what_is_claimed_of_a_bias_is_tried():
    alibi = of_slopes(AUTHORS)
    report = check_bias(alibi, HEADS, relative=False, max_length=1001)
    assert failed(report) == {"not relative"}
    assert report["formula"].outcome == report["any positions"].outcome == "does not apply"
    assert "of 8 laws fail, but the formula was not checked" in str(report)
    assert "shifting all positions changes nothing" in notes(report)
    crowded = check_bias(alibi, HEADS, near=600, max_length=1001)
    assert failed(crowded) == {"near in bfloat16"}
    assert crowded["near in bfloat16"].first == 257


@pytest.mark.parametrize("expected", [None, lambda q, k: -np.minimum(q[:, None] - k, 3) * 0.25 * np.ones((2, 1, 1))])
def test_a_tie_of_the_formula_is_no_fault_of_a_type(expected):
    """Distances from 3 on share a bias; rounding to bfloat16 beside a constant makes more ties, which are one."""

    def clipped(q, k, dtype=None, constant=0.0):
        table = -0.25 * (q[:, None] - k).clamp(max=3).expand(2, -1, -1)
        return (table + constant).to(dtype or torch.float32)

    assert not failed(check_bias(clipped, 2, near=8, expected=expected, max_length=2001))
    crowded = check_bias(partial(clipped, constant=300.0), 2, near=8, expected=expected, max_length=2001)
    assert failed(crowded) == {"near in bfloat16"}
    assert crowded["near in bfloat16"].first == 1


# Input encodings


def encode(p: Tensor, layout="interleaved", theta=10_000.0, dtype=torch.float64) -> Tensor:
    if dtype == torch.float64:
        return sinusoid(p, DIM, theta, layout)
    angles = p.to(dtype)[:, None] * inverse_frequencies(DIM, theta).to(dtype)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2).float()


BROKEN_SINUSOID = {
    "half": (lambda p: encode(p, "half"), {"formula", "layout"}, "this is the half layout"),
    "tensor2tensor": (lambda p: encode(p, "tensor2tensor"), {"formula", "layout"}, "this is the tensor2tensor layout"),
    "cosines first": (lambda p: encode(p).unflatten(-1, (-1, 2)).flip(-1).flatten(-2), None, "cosines come first"),
    "theta": (lambda p: encode(p, theta=500.0), {"formula"}, "angles are those of theta=500"),
    "float32": (lambda p: encode(p, dtype=torch.float32), {"far", "very far"}, "spacing here is 0.062 radians"),
    "bfloat16": (lambda p: encode(p.bfloat16().long()), {"any positions", "far", "very far"}, "positions in bfloat16"),
    "ahead": (lambda p: encode(p + 2), {"formula"}, "it is 2 ahead"),
    "scaled": (lambda p: encode(p) * 1.5, {"formula", "bounded"}, "it is 1.5 times the formula"),
    "sums": (lambda p: encode(p).cumsum(0), None, ""),
    "integers": (lambda p: encode(p).long(), None, "vectors of floating point are needed"),
    "writing": (lambda p: encode(p.clamp_(max=5)), None, "it modifies the positions"),
}


@pytest.mark.parametrize("name", BROKEN_SINUSOID)
def test_a_broken_encoding_fails_by_the_law_that_it_breaks(name):
    fn, laws, words = BROKEN_SINUSOID[name]
    report = check_input_encoding(fn, DIM)
    assert failed(report) == laws if laws is not None else failed(report)
    assert words in notes(report)


def test_sums_and_caches_fail_their_own_law_too():
    assert {"any order", "inner product", "bounded"} <= failed(check_input_encoding(BROKEN_SINUSOID["sums"][0], DIM))
    cache = {}
    remembering = check_input_encoding(lambda p: cache.setdefault(len(p), encode(p)), DIM)
    assert "call order" in failed(remembering)


@pytest.mark.parametrize("layout", ["interleaved", "half", "tensor2tensor"])
def test_the_sinusoid_of_whatwhere_passes(layout):
    encoding = ww.Sinusoidal(DIM, theta=500.0, layout=layout)
    report = check_input_encoding(lambda p: encoding(p)[0], DIM, layout=layout, theta=500.0, module=encoding)
    report.require()
    assert {finding.outcome for finding in report.findings} == {"passes"}


def decays(positions):
    return np.exp(-positions[:, None] / 2.0 ** np.arange(5))


@pytest.mark.parametrize(
    ("fn", "laws", "words"),
    [
        (lambda p: torch.from_numpy(decays(p.numpy())).float(), set(), "is not the sinusoid"),
        (lambda p: torch.from_numpy(decays(p.numpy() + 1)).float(), {"formula"}, "it is 1 ahead"),
        (lambda p: 3 * torch.from_numpy(decays(p.numpy())).float(), {"formula"}, "it is 3 times"),
    ],
)
def test_an_encoding_of_ones_own_is_compared_with_its_formula(fn, laws, words):
    report = check_input_encoding(fn, 5, expected=decays)
    assert failed(report) == laws
    assert words in notes(report)
    assert {report[law].outcome for law in ("layout", "bounded", "inner product")} == {"does not apply"}


def test_no_formula_of_ones_own_is_asked_beyond_the_last_position() -> None:
    table = decays(np.arange(300))

    def wrong_far_away(positions: torch.Tensor) -> torch.Tensor:
        return torch.tensor(table)[positions].float() + (positions > 250)[:, None]

    report = check_input_encoding(wrong_far_away, 5, expected=lambda p: table[p], max_length=300)
    assert {"far"} <= failed(report)


def test_laws_that_cannot_be_measured_repeat_the_reason_of_the_formula() -> None:
    def refusing(positions: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError("short texts alone")

    report = check_input_encoding(refusing, dim=8)
    assert report["formula"].note == report["any positions"].note == report["far"].note
