"""whatwhere.testing on rotations: our own pass every law, and a broken one fails the law that it breaks."""

import json
from dataclasses import FrozenInstanceError

import pytest
import torch
from torch import Tensor, nn

import whatwhere as ww
from whatwhere.kernels import rotary
from whatwhere.testing import check_rotary
from whatwhere.where.frequencies import inverse_frequencies

from .reports import failed, notes

DIM = 32
FAR = {"far", "very far", "relative far away"}


# Rotary


def rotate(
    x: Tensor, positions: Tensor, *, dim=DIM, theta=10_000.0, interleaved=False, dtype=torch.float64, slower=1.0
):
    """Rotary from its parts, each of which can be another."""
    angles = positions.to(dtype)[:, None] * (inverse_frequencies(dim, theta) / slower).to(dtype)
    return rotary.rotate(x, angles.cos().float()[None, None], angles.sin().float()[None, None], interleaved)


def remembering():
    """Keep the angles of the first caller with as many tokens."""
    cache = {}
    return lambda x, positions: rotate(x, cache.setdefault(len(positions), positions.clone()))


def remembering_in_bfloat16():
    """Keep the angles of the longest call so far, in the dtype of its queries."""
    cache = [torch.zeros(0)]

    def fn(x, positions):
        if positions[0] == 0 and len(positions) > len(cache[0]):
            cache[0] = positions.to(x.dtype)
        return rotate(x, cache[0][positions].long() if positions.max() < len(cache[0]) else positions)

    return fn


def stretches_only(x, positions):
    if (positions.diff() != 1).any():
        raise NotImplementedError("positions come from an offset\nand a length")
    return rotate(x, positions)


def ending(x, positions):
    if positions.max() > 4095:
        raise IndexError("index 4096 is out of bounds")
    return rotate(x, positions)


BROKEN_ROTARY = {
    "theta": (lambda x, p: rotate(x, p, theta=5e5), {"formula"}, "angles are those of theta=500,000"),
    "layout": (lambda x, p: rotate(x, p, interleaved=True), {"formula", "layout"}, "this is the interleaved layout"),
    "both": (lambda x, p: rotate(x, p, interleaved=True, theta=5e2), {"formula", "layout"}, "500, in the interleaved"),
    "partial": (lambda x, p: rotate(x, p, dim=16), {"formula", "layout"}, "16 features rotate, 32 are expected"),
    "nothing": (lambda x, p: x.clone(), {"formula", "layout"}, "nothing is rotated"),
    "one ahead": (lambda x, p: rotate(x, p + 1), {"formula", "position 0"}, "it counts from 1"),
    "backward": (lambda x, p: rotate(x, -p), {"formula"}, "rotates the other way"),
    "float32": (lambda x, p: rotate(x, p, dtype=torch.float32), FAR, "spacing here is 0.062 radians"),
    "bfloat16": (
        lambda x, p: rotate(x, p, dtype=torch.bfloat16), {"formula", "norms", "relative", "relative far away"}, "",
    ),
    "curved": (
        lambda x, p: rotate(x, p, slower=1 + p[:, None] / 100),
        {"formula", "relative", "relative far away"},
        "pair 0 rotates by 0.9901 per position, where 1 is needed",
    ),
    "growing": (
        lambda x, p: rotate(x, p) * (1 + 1e-3 * p[:, None]).to(x.dtype),
        {"formula", "norms", "relative", "relative far away", "bfloat16 input"},
        "angles at position 1 are correct",
    ),
    "dtype of x": (lambda x, p: rotate(x, p.to(x.dtype).long()), {"bfloat16 input"}, "correct up to position 256"),
    "float32 out": (lambda x, p: rotate(x, p).float(), {"shape and dtype"}, "bfloat16 are returned in torch.float32"),
    "writing": (lambda x, p: x.copy_(rotate(x, p)), {"input kept", "gradient"}, "writes its result into x"),
    "moving": (lambda x, p: rotate(x, p.add_(1).sub_(1).clamp_(max=5)), None, "modifies positions"),
    "backward pass": (lambda x, p: rotate(x, p) + x - x.detach(), {"gradient"}, ""),
    "first caller": (remembering(), None, "other positions get the result of an earlier call of the same length"),
    "first dtype": (remembering_in_bfloat16(), {"call order"}, "wrong in float32 after a call in bfloat16"),
    "ending": (ending, {"norms", "bfloat16 input", "autocast", *FAR}, "raised IndexError: index 4096 is out of bounds"),
    "undefined": (lambda x, p: rotate(x, p) * torch.nan, None, ""),
    "no tensor": (lambda x, p: None, None, "returned a NoneType, but a tensor is needed"),
    "shape": (
        lambda x, p: rotate(x, p)[0], None, "returned the shape (3, 16, 32), but (batch, heads, tokens, head_dim)",
    ),
}  # fmt: skip
SCALINGS = [
    ww.scaling.Linear(4.0),
    ww.scaling.NTK(4.0),
    ww.scaling.YaRN(4.0, original_length=64),
    ww.scaling.Llama3(original_length=64),
    ww.scaling.Proportional(0.5),
    ww.scaling.DynamicNTK(2.0, original_length=512),
    ww.scaling.LongRoPE((1.0,) * 16, (4.0,) * 16, original_length=512, factor=4.0),
]


@pytest.mark.parametrize("name", BROKEN_ROTARY)
def test_a_broken_rotation_fails_by_the_law_that_it_breaks(name):
    fn, laws, words = BROKEN_ROTARY[name]
    report = check_rotary(fn, DIM)
    assert failed(report) == laws if laws is not None else failed(report)
    assert words in notes(report)


def test_caches_and_writing_fail_their_own_law_too():
    assert "call order" in failed(check_rotary(remembering(), DIM))
    assert "input kept" in failed(check_rotary(BROKEN_ROTARY["moving"][0], DIM))
    assert check_rotary(BROKEN_ROTARY["undefined"][0], DIM)["formula"].error == float("inf")


@pytest.mark.parametrize("options", [{}, {"interleaved": True}, {"rotary_dim": 8}, {"theta": 5e5, "rotary_dim": 2}])
def test_the_rotary_of_whatwhere_passes(options):
    rope = ww.Rotary(DIM, **options)
    queries, keys = (lambda x, p, n=n: rope(x, x, p)[n] for n in (0, 1))
    report = check_rotary(queries, DIM, keys=keys, module=rope, **options)
    report.require()
    assert {finding.outcome for finding in report.findings} == {"passes"}


@pytest.mark.parametrize("scaling", SCALINGS, ids=lambda scaling: type(scaling).__name__)
def test_scaled_rotary(scaling):
    rope, plain = ww.Rotary(DIM, scaling=scaling), ww.Rotary(DIM)
    check_rotary(lambda x, p: rope(x, x, p, regime_length=1)[0], DIM, scaling=scaling).require()
    unscaled = check_rotary(lambda x, p: plain(x, x, p)[0], DIM, scaling=scaling)
    if not scaling.follows_length:
        assert failed(unscaled) >= {"formula"}
        assert "the scaling is not applied" in notes(unscaled)


def test_readings_of_partial_and_scaled_rotations():
    yarn = ww.scaling.YaRN(4.0, original_length=64)
    rope = ww.Rotary(DIM, scaling=yarn)
    report = check_rotary(lambda x, p: rope(x, x, p)[0] / yarn.magnitude, DIM, scaling=yarn)
    assert failed(report) >= {"formula", "position 0", "norms"}
    assert "magnitude is not applied" in notes(report)
    assert "formula" in failed(check_rotary(lambda x, p: 1.5 * rotate(x, p, dim=2), 2))
    whole = check_rotary(lambda x, p: rotate(x, p, dim=16, theta=100.0), DIM, rotary_dim=16)
    assert "exponents are divided by head_dim" in notes(whole)
    assert "feature 8 is paired with 9" not in notes(whole)


BROKEN_KEYS = {
    "not rotated": (lambda x, p: x.clone(), {"keys", "relative", "relative far away"}),
    "the other way": (lambda x, p: rotate(x, -p), {"keys", "relative", "relative far away"}),
    "one ahead": (lambda x, p: rotate(x, p + 1), {"keys"}),
    "other layout": (lambda x, p: rotate(x, p, interleaved=True), {"keys", "relative", "relative far away"}),
}


@pytest.mark.parametrize("name", BROKEN_KEYS)
def test_keys_that_are_not_rotated_as_queries_are_detected(name):
    """One function is tried on queries alone, and says so."""
    fn, laws = BROKEN_KEYS[name]
    alone = check_rotary(rotate, DIM)
    assert alone.passed
    assert alone["keys"].outcome == "does not apply"
    assert "pass keys=" in alone["keys"].note
    assert failed(check_rotary(rotate, DIM, keys=fn)) == laws


def test_what_is_not_offered_does_not_apply():
    report = check_rotary(stretches_only, DIM, max_length=301)
    assert report.passed
    outcomes = {finding.law: finding.outcome for finding in report.findings}
    assert {law for law, outcome in outcomes.items() if outcome != "passes"} == {
        "keys", "any positions", "very far", "bfloat16 module",
    }  # fmt: skip
    assert report["any positions"].note.endswith("does not support this: positions come from an offset")
    assert "positions up to 300" in report["very far"].note
    assert "up to 300 rotate" in report["far"].statement
    with torch.no_grad():
        inference = check_rotary(lambda x, p: rotate(x, p).detach(), DIM)
    assert inference["gradient"].outcome == "does not apply"


class Stored(nn.Module):
    """Rotary whose frequencies are a buffer, as most have it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("frequencies", inverse_frequencies(DIM).float())

    def forward(self, x, positions):
        angles = positions[:, None].double() * self.frequencies.double()
        return rotary.rotate(x, angles.cos().float()[None, None], angles.sin().float()[None, None], False)


def test_a_module_is_converted_and_restored():
    module = Stored()
    kept = module.frequencies
    report = check_rotary(module, DIM, module=module, max_length=5001)
    assert "bfloat16 module" in failed(report)
    assert report["bfloat16 module"].error > 0.5
    assert module.frequencies is kept


# A formula of one's own


class Learned(nn.Module):
    """Rotary that learns the logarithms of its frequencies; in float64, whatever their type."""

    def __init__(self, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        self.logs, self.dtype = nn.Parameter(inverse_frequencies(DIM).log().float()), dtype

    def forward(self, x, positions):
        dtype = self.dtype if self.logs.dtype == torch.bfloat16 else torch.float64
        angles = positions[:, None].to(dtype) * self.logs.double().exp().to(dtype)
        return rotary.rotate(x, angles.cos().float()[None, None], angles.sin().float()[None, None], False)


def test_learned_angles_may_be_rounded_as_weights_are():
    right, wrong = Learned(), Learned(torch.bfloat16)
    assert check_rotary(right, DIM, module=right, max_length=5001)["bfloat16 module"].outcome == "passes"
    assert check_rotary(wrong, DIM, module=wrong, max_length=5001)["bfloat16 module"].error > 0.5


def own(factor: float, grows: float):
    """Return rotary of slower angles, with norms that may grow, as a formula of NumPy arrays."""
    slower = [factor * w for w in ww.reference.inverse_frequencies(DIM)]

    def formula(x, positions):
        mapped = ww.reference.rotary(x.reshape(-1, *x.shape[-2:]), positions, frequencies=slower).reshape(x.shape)
        return mapped * (1 + grows * positions[:, None])

    return formula


@pytest.mark.parametrize("grows", [0.0, 1e-4])
def test_a_formula_of_ones_own(grows):
    def growing(x, p, slower=2.0):
        return (rotate(x, p, slower=slower) * (1 + grows * p[:, None])).to(x.dtype)

    report = check_rotary(growing, DIM, expected=own(0.5, grows), max_length=4096)
    report.require()
    of_rotations = {"norms", "relative", "relative far away"} if grows else set()
    unchecked = {each.law for each in report.findings if each.outcome == "does not apply"}
    assert unchecked == {"layout", "keys", "very far", "bfloat16 module", *of_rotations}
    other = check_rotary(lambda x, p: growing(x, p, slower=1.0), DIM, expected=own(0.5, grows), max_length=4096)
    assert failed(other) == {"formula"}
    cut = check_rotary(lambda x, p: growing(x, p) + x - x.detach(), DIM, expected=own(0.5, grows), max_length=4096)
    assert failed(cut) == {"gradient"}


# Reports, and what is refused


def test_a_report_names_the_position_the_size_and_the_reason():
    report = check_rotary(BROKEN_ROTARY["float32"][0], DIM, max_length=200_001)
    finding = report["far"]
    assert (finding.first, finding.unit, finding.outcome) == (131_061, "position", "fails")
    assert 1e-4 < finding.error < 0.016
    assert finding.tolerance == 6 * 2**-24
    text = " ".join(str(report).split())
    assert "2 of 14 laws fail" in text
    assert f"far fails {finding.error:.1e} 3.6e-07 position 131,061" in text
    assert "3.6e-07 is allowed because float32 rounds" in text
    with pytest.raises(AssertionError, match="2 of 14 laws fail") as caught:
        report.require()
    assert str(caught.value) == str(report)
    with pytest.raises(AssertionError, match="first at position 131,061"):
        finding.require()
    layout = check_rotary(BROKEN_ROTARY["layout"][0], DIM)["layout"]
    with pytest.raises(AssertionError, match=r"^layout: fails: this is the inter.*\s+The features of each pair"):
        layout.require()
    report["formula"].require()
    with pytest.raises(KeyError, match="this report has: formula, position 0"):
        report["farther"]
    with pytest.raises(FrozenInstanceError):
        report.check = "other"
    held = json.loads(json.dumps(report.as_dict()))
    assert (held["passed"], held["settings"]["head_dim"], len(held["findings"])) == (False, DIM, 17)
    broken = check_rotary(BROKEN_ROTARY["undefined"][0], DIM).as_dict()
    assert json.loads(json.dumps(broken, allow_nan=False))["findings"][0]["error"] == "inf"


def test_a_wrong_ramp_of_a_scaling_is_explained_by_the_pair_that_differs():
    """A peer's YaRN slows the pairs of high frequency instead of those of low frequency."""
    yarn = ww.scaling.YaRN(4.0, original_length=4096, attention_factor=1.0)
    fast = ww.Rotary(DIM).frequencies()
    factors = (fast / yarn.frequencies(DIM, 10_000.0)).tolist()
    wrong = ww.Rotary(DIM, scaling=ww.scaling.LongRoPE(tuple(reversed(factors)), tuple(reversed(factors)), 4096, 1.0))
    report = check_rotary(lambda x, positions: wrong(x, x, positions)[0], DIM, scaling=yarn)
    assert report["formula"].note.startswith("pair 0 rotates by 0.25 per position, where 1 is needed")
