"""The NumPy reference equals the library, and gradients are those of its differences."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import whatwhere as ww
from tests.gradients import require_gradients
from whatwhere import reference
from whatwhere.where.attention import ENGINES, Engine

IDS = np.array([[3, 0, 3, 5], [3, 6, 1, 0]])  # 3 and 0 occur several times, 2 and 4 never


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


def as_tensor(x: np.ndarray) -> Tensor:
    """Copy into a float64 leaf that collects a gradient."""
    return torch.tensor(x, dtype=torch.float64, requires_grad=True)


def assert_close(got: np.ndarray | Tensor, wanted: np.ndarray, tolerance: float = 1e-12) -> None:
    array = got.detach().numpy() if isinstance(got, Tensor) else got
    np.testing.assert_allclose(array, wanted, rtol=tolerance, atol=tolerance)


# The token table


def table(weight: np.ndarray, padding_idx: int | None = None, scale: float | None = None) -> ww.TokenEmbedding:
    tokens = ww.TokenEmbedding(*weight.shape, padding_idx=padding_idx, scale=scale, dtype=torch.float64)
    with torch.no_grad():
        tokens.weight.copy_(torch.tensor(weight))
    return tokens


@pytest.mark.parametrize("scale", [1.0, math.sqrt(5)])
@pytest.mark.parametrize("padding_idx", [None, 3])
def test_lookup(random: np.random.Generator, scale: float, padding_idx: int | None) -> None:
    weight, g = random.normal(size=(7, 5)), random.normal(size=(2, 4, 5))
    tokens = table(weight, padding_idx, scale)
    rows = tokens(torch.tensor(IDS))
    rows.backward(torch.tensor(g))
    assert_close(rows, reference.lookup(weight, IDS, scale))
    assert tokens.weight.grad is not None
    assert_close(tokens.weight.grad, reference.lookup_gradient(g, IDS, 7, scale, padding_idx))


@pytest.mark.parametrize("padding_idx", [None, 2])
def test_readout(random: np.random.Generator, padding_idx: int | None) -> None:
    weight, hidden, g = random.normal(size=(7, 5)), random.normal(size=(2, 3, 5)), random.normal(size=(2, 3, 7))
    tokens, h = table(weight, padding_idx), as_tensor(hidden)
    logits = tokens.readout(h)
    logits.backward(torch.tensor(g))
    d_hidden, d_weight = reference.readout_gradient(g, hidden, weight, padding_idx)
    assert_close(logits, reference.readout(hidden, weight, padding_idx))
    assert h.grad is not None
    assert tokens.weight.grad is not None
    assert_close(h.grad, d_hidden)
    assert_close(tokens.weight.grad, d_weight)


def test_tied_table_collects_both_gradients(random: np.random.Generator) -> None:
    weight, g = random.normal(size=(7, 5)), random.normal(size=(2, 4, 7))
    tokens = table(weight)
    tokens.readout(tokens(torch.tensor(IDS))).backward(torch.tensor(g))
    d_hidden, of_logits = reference.readout_gradient(g, reference.lookup(weight, IDS), weight)
    assert tokens.weight.grad is not None
    assert_close(tokens.weight.grad, reference.lookup_gradient(d_hidden, IDS, 7) + of_logits)


def test_the_reference_s_own_gradients_are_those_of_differences(random: np.random.Generator) -> None:
    weight, hidden, g = random.normal(size=(7, 5)), random.normal(size=(2, 4, 5)), random.normal(size=(2, 4, 5))
    of_lookup = reference.lookup_gradient(g, IDS, 7, scale=2.5)
    require_gradients((of_lookup,), lambda w: reference.lookup(w, IDS, scale=2.5), (weight,), g)
    g = random.normal(size=(2, 4, 7))
    of_readout = reference.readout_gradient(g, hidden, weight, padding_idx=1)
    require_gradients(of_readout, lambda h, w: reference.readout(h, w, padding_idx=1), (hidden, weight), g)


# Door 1


def test_frequencies() -> None:
    assert_close(ww.Rotary(12, theta=77.0).inverse_frequencies, np.array(reference.inverse_frequencies(12, 77.0)))
    ours = ww.frequencies.tensor2tensor_frequencies(12, 77.0)
    assert_close(ours, np.array(reference.tensor2tensor_frequencies(12, 77.0)))


# Door 2


@settings(max_examples=25, deadline=None)
@given(m=st.integers(0, 10_000), n=st.integers(0, 10_000), shift=st.integers(0, 1_000_000), interleaved=st.booleans())
def test_rotary_score_depends_on_the_distance_only(m: int, n: int, shift: int, interleaved: bool) -> None:
    q, k = np.random.default_rng(1).normal(size=(2, 1, 1, 8))

    def score(at_query: int, at_key: int) -> float:
        rotated_q = reference.rotary(q, np.array([at_query]), interleaved=interleaved)
        return float((rotated_q * reference.rotary(k, np.array([at_key]), interleaved=interleaved)).sum())

    # A float64 angle near 1,000,000 is exact to 1e-10.
    assert score(m, n) == pytest.approx(score(m + shift, n + shift), abs=1e-8)


# Attention


def attention_case(
    random: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return q, k, v, g, bias and mask; query 1 may attend to no key."""
    q, k = random.normal(size=(3, 4, 6)), random.normal(size=(3, 5, 6))
    v, g = random.normal(size=(3, 5, 2)), random.normal(size=(3, 4, 2))
    mask = random.random(size=(4, 5)) < 0.7
    mask[1], mask[2] = False, True
    return q, k, v, g, random.normal(size=(3, 4, 5)), mask


@pytest.mark.parametrize("scale", [None, 1.0])
def test_attention_equals_pytorch(random: np.random.Generator, scale: float | None) -> None:
    q, k, v, g, bias, mask = attention_case(random)
    leaves = [as_tensor(x) for x in (q, k, v, bias)]
    added = leaves[3].masked_fill(~torch.tensor(mask), -torch.inf)
    y = torch.nn.functional.scaled_dot_product_attention(*leaves[:3], attn_mask=added, scale=scale)
    y.backward(torch.tensor(g))
    assert_close(y, reference.attention(q, k, v, bias, mask, scale))
    gradients = [leaf.grad for leaf in leaves]
    require_gradients(gradients, lambda *given: reference.attention(*given, mask, scale), (q, k, v, bias), g)


def test_attention_with_a_sink_is_attention_to_one_more_key(random: np.random.Generator) -> None:
    """A key whose score is the sink, and whose value is zero; and the weights by sigmoid(l - sink)."""
    q, k, v, _, bias, mask = attention_case(random)
    sink = random.normal(size=3)
    y = reference.attention(q, k, v, bias, mask, 0.3, sink)
    more_k, more_v = (np.concatenate([x, np.zeros((3, 1, x.shape[2]))], axis=1) for x in (k, v))
    more_bias = np.concatenate([bias, np.broadcast_to(sink[:, None, None], (3, 4, 1))], axis=2)
    more_mask = np.concatenate([mask, np.ones((4, 1), dtype=bool)], axis=1)
    assert_close(y, reference.attention(q, more_k, more_v, more_bias, more_mask, 0.3))
    scores = np.where(mask, q @ k.transpose(0, 2, 1) * 0.3 + bias, -np.inf)
    share = 1 / (1 + np.exp(sink[:, None] - np.logaddexp.reduce(scores, axis=2)))
    assert_close(y, reference.attention(q, k, v, bias, mask, 0.3) * share[..., None])


def test_a_query_without_keys_has_zeros(random: np.random.Generator) -> None:
    q, k, v, _, bias, mask = attention_case(random)
    assert not reference.attention(q, k, v, bias, mask)[:, 1].any()
    folded = np.where(mask, bias, -np.inf)  # minus infinity in the bias says the same as False in the mask
    assert_close(reference.attention(q, k, v, folded), reference.attention(q, k, v, bias, mask))


def test_attention_survives_large_scores() -> None:
    q = np.full((1, 1, 1), 1e6)
    weights = reference.attention_weights(q, np.array([[[1.0], [0.0]]]))
    assert weights.tolist() == [[[1.0, 0.0]]]


# FlexAttention compiles what it is given, uncompiled callers included.
@pytest.mark.parametrize(
    "engine", [pytest.param(e, marks=pytest.mark.compile) if e == "flex" else e for e in ENGINES if e != "flash"]
)
@pytest.mark.parametrize("score", [None, ww.ALiBi(3)], ids=["plain", "alibi"])
def test_where_equals_the_chain(random: np.random.Generator, engine: Engine, score: ww.ALiBi | None) -> None:
    """Rotary, bias, mask of left-padded sequences and attention, forward and (but for flex) backward."""
    q, k = random.normal(size=(2, 3, 5, 8)), random.normal(size=(2, 3, 5, 8))
    v, g = random.normal(size=(2, 3, 5, 8)), random.normal(size=(2, 3, 5, 8))
    real = np.array([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
    g *= real[:, None, :, None]  # what padding gives is nobody's business
    here = ww.Where(query_key=ww.Rotary(8), score=score).at(ww.Positions.from_mask(torch.tensor(real)))
    leaves = [as_tensor(x) for x in (q, k, v)]
    trains = engine != "flex"
    with torch.set_grad_enabled(trains):  # the leaves ask for a gradient, as those of a model do
        y = here.attention(*here.query_key(leaves[0], leaves[1]), leaves[2], engine=engine)
    if trains:
        y.backward(torch.tensor(g))

    for row in range(2):
        index = np.maximum(real[row].cumsum() - 1, 0)
        mask = (real[row][None, :] == 1) & (real[row][:, None] == 1) & np.tri(5, dtype=bool)
        bias = None if score is None else reference.alibi_bias(index, index, 3)

        def chain(q, k, v, index=index, bias=bias, mask=mask):  # type: ignore[no-untyped-def]
            return reference.attention(reference.rotary(q, index), reference.rotary(k, index), v, bias, mask)

        # float32 cosines and biases; queries and keys of padding see nothing
        assert_close(y[row], chain(q[row], k[row], v[row]), 2e-6)
        if trains:
            gradients = [leaf.grad[row] for leaf in leaves if leaf.grad is not None]
            require_gradients(gradients, chain, (q[row], k[row], v[row]), g[row], atol=2e-5)


# What the reference takes


def as_lists(value: object) -> object:
    return value.tolist() if isinstance(value, np.ndarray) else value


ONES = np.ones((2, 3, 4))
AT = np.arange(3)
CALLS = {
    "sinusoid": (reference.sinusoid, (AT, 4)),
    "axial_sinusoid": (reference.axial_sinusoid, (np.array([[0, 1], [2, 3]]), 4)),
    "learned": (reference.learned, (ONES[0], AT)),
    "lookup": (reference.lookup, (ONES[0], np.array([[0, 2]]))),
    "readout": (reference.readout, (ONES[0], ONES[1])),
    "rotary": (reference.rotary, (ONES, AT)),
    "axial_rotary": (reference.axial_rotary, (ONES, np.array([AT, AT]), [1, 1])),
    "xpos": (reference.xpos, (ONES, AT, True)),
    "pope": (reference.pope, (ONES, AT, 10.0, ONES[:, 0])),
    "alibi_bias": (reference.alibi_bias, (AT, AT, 2)),
    "t5_bias": (reference.t5_bias, (ONES[0], AT, AT)),
    "fire_bias": (reference.fire_bias, (AT, AT, 0.1, 2.0, (AT + 1.0, AT + 2.0), (ONES[0, :2, :3], np.ones(2)))),
    "attention": (reference.attention, (ONES, ONES, ONES)),
    "adamw": (reference.adamw, (AT, AT, AT, AT, 1, 0.1)),
}


@pytest.mark.parametrize("name", CALLS)
def test_lists_are_as_good_as_arrays(name: str) -> None:
    function, given = CALLS[name]
    lists = [tuple(map(as_lists, each)) if isinstance(each, tuple) else as_lists(each) for each in given]
    np.testing.assert_array_equal(function(*lists), function(*given))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: reference.sinusoid(4, AT), r"sinusoid\(positions, dim, .*\) got dim of shape \(3,\)"),
        (lambda: reference.alibi_bias(2, AT, AT), r"alibi_bias\(.*\) got query_positions of shape \(\)"),
        (lambda: reference.rotary(AT, ONES), r"got x of shape \(3,\), but needs 3 dimensions"),
        (lambda: reference.lookup(AT, ONES[0]), r"got weight of shape \(3,\), but needs 2 dimensions"),
        (lambda: reference.lookup_gradient([1, 1], ONES[0] + 0.5, 2), "got ids of type float64, but needs whole"),
        (lambda: reference.lookup_gradient([1, 1], [[1.0], [3.0]], 5), r"g of lookup_gradient has shape \(2,\)"),
        (lambda: reference.lookup_gradient(ONES[0], 2, [1, 1]), "needs a single value: is the order right"),
        (lambda: reference.attention(ONES, ONES[0], ONES), r"got k of shape \(3, 4\)"),
        (lambda: reference.attention(ONES, ONES, ONES, scale=ONES), r"got scale of shape \(2, 3, 4\)"),
        (lambda: reference.attention(None, ONES, ONES), "got q of type object"),
        (lambda: reference.attention(ONES, [[[1.0], [1.0, 2.0]]], ONES), "got k with rows of unequal lengths"),
        (lambda: reference.sinusoid(["a"], 4), "got positions of type <U1"),
        (lambda: reference.sinusoid([0.5], 4), "got positions of type float64, but needs whole numbers"),
        (lambda: reference.fire_bias(AT, AT, 1.0, 1.0, ONES, ONES), "got first as ndarray, but needs 2 arrays"),
        (lambda: reference.inverse_frequencies(AT), "dim is array"),
        (lambda: reference.inverse_frequencies(5), "even"),
        (lambda: reference.tensor2tensor_frequencies(2), "at least 4"),
        (lambda: reference.sinusoid(AT, 4, layout="quarters"), "layout"),
        (lambda: reference.rotary(ONES, AT, rotary_dim=6), "only 4 features"),
        (lambda: reference.rotary(ONES, np.arange(2)), r"positions has shape \(2,\)"),
        (lambda: reference.alibi_slopes(0), "at least 1"),
        (lambda: reference.attention(ONES, np.ones((2, 3, 6)), ONES), "k has shape"),
        (lambda: reference.attention(ONES, ONES, np.ones((2, 2, 4))), "v has shape"),
        *(
            (call, rf"{wrong} is outside the table, which has 3 rows \(0\.\.2\)")
            for wrong in (-1, 3)
            for call in (
                lambda wrong=wrong: reference.lookup(ONES[0], np.array([0, wrong])),
                lambda wrong=wrong: reference.lookup_gradient(ONES[:, 0], np.array([0, wrong]), 3),
                lambda wrong=wrong: reference.learned(ONES[0], np.array([0, wrong])),
                lambda wrong=wrong: reference.learned_gradient(ONES[:, 0], np.array([0, wrong]), 3),
            )
        ),
    ],
)
@pytest.mark.usefixtures("our_own_checks")
def test_errors_of_the_reference(call: Callable[[], object], words: str) -> None:
    with pytest.raises((ValueError, IndexError), match=words):
        call()
