"""The scalings of rotary: their formulas, limits, regimes and magnitudes."""

import pickle

import numpy as np
import pytest
import torch

import whatwhere as ww
from tests.samples import draw_float64 as draw
from whatwhere import reference

pytestmark = pytest.mark.filterwarnings("ignore::whatwhere.errors.RegimeWarning")  # which test_kv_cache.py holds
DIM, THETA, TRAINED = 32, 10_000.0, 64
PAIRS = DIM // 2
PLAIN = ww.frequencies.inverse_frequencies(DIM, THETA)
SHORT = tuple(1 + 0.05 * i for i in range(PAIRS))
LONG = tuple(1.0 + i for i in range(PAIRS))
LONGROPE = ww.scaling.LongRoPE(SHORT, LONG, TRAINED, factor=8.0)
DYNAMIC = ww.scaling.DynamicNTK(4.0, TRAINED)


# Each formula against the reference

FORMULAS = {
    "linear": (ww.scaling.Linear(4.0), lambda dim, theta: reference.linear_frequencies(dim, theta, 4.0)),
    "ntk": (ww.scaling.NTK(4.0), lambda dim, theta: reference.ntk_frequencies(dim, theta, 4.0)),
    "yarn": (
        ww.scaling.YaRN(4.0, TRAINED, beta_fast=8.0, beta_slow=0.5),
        lambda dim, theta: reference.yarn_frequencies(dim, theta, 4.0, TRAINED, 8.0, 0.5),
    ),
    "yarn, not truncated": (
        ww.scaling.YaRN(8.0, 4096, truncate=False),
        lambda dim, theta: reference.yarn_frequencies(dim, theta, 8.0, 4096, truncate=False),
    ),
    "yarn, a step at pair 0": (
        ww.scaling.YaRN(4.0, 5),
        lambda dim, theta: reference.yarn_frequencies(dim, theta, 4.0, 5),
    ),
    "llama3": (ww.scaling.Llama3(8.0, 8192), lambda dim, theta: reference.llama3_frequencies(dim, theta, 8.0, 8192)),
    "llama3, other bounds": (
        ww.scaling.Llama3(2.0, TRAINED, 0.25, 8.0),
        lambda dim, theta: reference.llama3_frequencies(dim, theta, 2.0, TRAINED, 0.25, 8.0),
    ),
    "yarn, equal betas": (
        ww.scaling.YaRN(4.0, TRAINED, beta_fast=1.0, beta_slow=1.0),
        lambda dim, theta: reference.yarn_frequencies(dim, theta, 4.0, TRAINED, 1.0, 1.0),
    ),
    "yarn, equal betas, not truncated": (
        ww.scaling.YaRN(4.0, TRAINED, beta_fast=1.0, beta_slow=1.0, truncate=False),
        lambda dim, theta: reference.yarn_frequencies(dim, theta, 4.0, TRAINED, 1.0, 1.0, truncate=False),
    ),
    "llama3, a step": (
        ww.scaling.Llama3(16.0, 8192, 1.0, 1.0),
        lambda dim, theta: reference.llama3_frequencies(dim, theta, 16.0, 8192, 1.0, 1.0),
    ),
    "proportional": (
        ww.scaling.Proportional(0.4, 8.0),
        lambda dim, theta: reference.proportional_frequencies(dim, theta, 0.4, 8.0),
    ),
}


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize(("dim", "theta"), [(8, 10_000.0), (64, 500_000.0), (128, 1e6), (6, 100.0)])
def test_frequencies_are_the_formula(name, dim, theta):
    scaling, formula = FORMULAS[name]
    made = scaling.frequencies(dim, theta)
    assert made.dtype == torch.float64
    assert made.tolist() == pytest.approx(formula(dim, theta), rel=1e-13)
    assert ww.Rotary(dim, theta, scaling=scaling).inverse_frequencies.tolist() == made.tolist()


@pytest.mark.parametrize("length", [1, 64, 65, 100, 128, 129, 1000, 100_000])
@pytest.mark.parametrize("factor", [1.0, 2.0, 8.5])
@pytest.mark.parametrize("doubling", [False, True])
def test_dynamic_ntk_is_the_formula_at_every_length(factor, length, doubling):
    scaling = ww.scaling.DynamicNTK(factor, TRAINED, doubling)
    made = scaling.frequencies(DIM, THETA, lengths=torch.tensor([[length, 5]]))
    wanted = [reference.dynamic_ntk_frequencies(DIM, THETA, factor, TRAINED, n, doubling) for n in (length, 5)]
    np.testing.assert_allclose(made[0].numpy(), wanted, rtol=1e-13)


@pytest.mark.parametrize("length", [1, 64, 65, 10_000])
def test_longrope_is_the_formula_at_every_length(length):
    made = LONGROPE.frequencies(DIM, THETA, lengths=torch.tensor([length]))
    wanted = reference.longrope_frequencies(DIM, THETA, SHORT, LONG, TRAINED, length)
    np.testing.assert_allclose(made[0].numpy(), wanted, rtol=1e-13)


# Limits


def test_dynamic_ntk_without_a_length_is_unscaled():
    assert torch.equal(DYNAMIC.frequencies(DIM, THETA), PLAIN)


# Regimes

FOLLOWING = pytest.mark.parametrize("scaling", [DYNAMIC, LONGROPE], ids=["dynamic-ntk", "longrope"])


@FOLLOWING
def test_a_step_of_decoding_has_the_length_of_all_that_it_sees(scaling):
    rope, p, q = ww.Rotary(DIM, scaling=scaling), ww.positions(80), draw(1, 2, 80, DIM)
    whole = rope(q, q, p)[0]
    here = ww.Where(query_key=rope).at(p[79:], p)
    assert torch.equal(here.query_key(q[:, :, 79:], q[:, :, 79:])[0], whole[:, :, 79:])
    # Queries that stand alike for sequences of unequal length.
    keys = ww.positions(70, start=torch.tensor([0, 900]))
    rotated, _ = rope(q[:, :, :1].expand(2, -1, -1, -1), draw(2, 1, 70, DIM), ww.positions(1, start=3), keys)
    for row, length in enumerate((70, 970)):
        alone = rope(q[:, :, :1], q[:, :, :1], ww.positions(1, start=3), regime_length=length)[0]
        assert torch.equal(rotated[row], alone[0])


@FOLLOWING
def test_a_stated_regime_is_that_of_all(scaling):
    rope, q, p = ww.Rotary(DIM, scaling=scaling), draw(1, 2, 9, DIM), ww.Positions.packed([4, 5])
    stated = rope(q, q, p, regime_length=500)[0]
    fixed = ww.Rotary(DIM, scaling=scaling).frequencies(torch.tensor([500]))[0]
    wanted = reference.rotary(q[0].numpy(), p.index[0, 0].numpy(), frequencies=fixed.tolist())
    np.testing.assert_allclose(stated[0].numpy(), scaling.magnitude * wanted, rtol=0, atol=1e-6)
    assert torch.equal(ww.Where(query_key=rope).at(p, regime_length=500).query_key(q, q)[0], stated)
    assert (stated - rope(q, q, p)[0]).abs().max() > 1e-2


# Magnitudes


def test_features_that_do_not_rotate_have_no_magnitude():
    rope = ww.Rotary(DIM + 8, rotary_dim=DIM, scaling=ww.scaling.YaRN(16.0, TRAINED))
    q = draw(1, 2, 3, DIM + 8)
    assert torch.equal(rope(q, q, ww.positions(3))[0][..., DIM:], q[..., DIM:])


# Values, and errors


def test_scalings_are_values():
    assert ww.scaling.YaRN(4.0, 64) == ww.scaling.YaRN(4.0, 64) != ww.scaling.YaRN(4.0, 65)
    assert ww.scaling.LongRoPE([1.0, 2.0], [3.0, 4.0], 64) == ww.scaling.LongRoPE((1.0, 2.0), (3.0, 4.0), 64)
    assert len({ww.scaling.Linear(2.0), ww.scaling.Linear(2.0), ww.scaling.Linear(3.0), ww.scaling.NTK(2.0)}) == 3
    assert pickle.loads(pickle.dumps(LONGROPE)) == LONGROPE
    with pytest.raises(AttributeError):
        ww.scaling.Linear(2.0).factor = 3.0
    assert repr(ww.Rotary(8, scaling=ww.scaling.Linear(2.0))).endswith("rotary_dim=8, scaling=Linear(factor=2.0))")
    assert not ww.Rotary(8, scaling=ww.scaling.Linear(2.0)).state_dict()


@FOLLOWING
def test_each_document_has_its_own_regime(scaling):
    rope, sizes = ww.Rotary(DIM, scaling=scaling), (100, 30, 64, 65)
    together = rope.bind(ww.Positions.packed(sizes))
    for part in range(2):
        apart = [rope.bind(ww.positions(n))[part] for n in sizes]
        assert torch.equal(together[part], torch.cat(apart, dim=2))


@pytest.mark.parametrize(
    "scaling", [ww.scaling.YaRN(16.0, TRAINED), ww.scaling.YaRN(4.0, TRAINED, attention_factor=2.5), LONGROPE]
)
def test_lengths_are_multiplied_by_the_magnitude_and_scores_by_its_square(scaling):
    rope, p = ww.Rotary(DIM, scaling=scaling), ww.positions(12, start=1000)
    q, k = draw(1, 2, 12, DIM), draw(1, 2, 12, DIM, seed=1)
    rotated_q, rotated_k = rope(q, k, p)
    assert rope.magnitude == scaling.magnitude > 1
    torch.testing.assert_close(rotated_q.norm(dim=-1), scaling.magnitude * q.norm(dim=-1), rtol=1e-7, atol=0)
    own = (rotated_q * rotated_k).sum(-1)  # a query and the key of its own position
    torch.testing.assert_close(own, scaling.magnitude**2 * (q * k).sum(-1), rtol=0, atol=1e-5)
