"""DeBERTa: content meets position, position meets content."""

import math
import pickle
from copy import deepcopy

import numpy as np
import pytest
import torch
from torch import Tensor

import whatwhere as ww
from tests.gradients import require_gradients
from tests.samples import draw_float64 as draw
from tests.samples import table
from whatwhere import reference
from whatwhere.where.score.deberta import edges

BOTH, C2P, P2C = ("c2p", "p2c"), ("c2p",), ("p2c",)
SETTINGS = [(4, None), (9, 6), (4, 4), (20, 8), (512, 256)]  # max_distance, position_buckets


def sampled(
    head_dim: int = 4, num_heads: int = 2, max_distance: int = 9, position_buckets: int | None = 6, **settings
) -> ww.DeBERTa:
    torch.manual_seed(0)
    return ww.DeBERTa(head_dim, num_heads, max_distance, position_buckets, std=1.0, **settings).double()


def as_array(parameter: Tensor | None) -> np.ndarray | None:
    return None if parameter is None else parameter.detach().numpy()


@pytest.mark.parametrize(("max_distance", "position_buckets"), SETTINGS)
def test_rows_are_those_of_the_reference(max_distance, position_buckets):
    rows = ww.DeBERTa(1, 1, max_distance, position_buckets).rows(torch.arange(-700, 701)).tolist()
    side, shared = (max_distance, None) if position_buckets is None else (position_buckets, max_distance)
    assert rows == [reference.deberta_row(n, side, shared) for n in range(-700, 701)]
    assert sorted(rows) == rows
    assert (rows[0], rows[700], rows[-1]) == (0, side, 2 * side - 1)


@pytest.mark.parametrize("terms", [BOTH, C2P, P2C])
@pytest.mark.parametrize(("max_distance", "position_buckets"), SETTINGS)
def test_it_is_that_of_the_reference(max_distance, position_buckets, terms):
    scheme = sampled(max_distance=max_distance, position_buckets=position_buckets, terms=terms)
    q, k, shared = draw(2, 2, 3, 4), draw(2, 2, 7, 4, seed=1), None if position_buckets is None else max_distance
    at_queries, at_keys = np.array([0, 4, 30]), np.array([0, 1, 2, 3, 5, 29, 999])
    ours = table(scheme, *(ww.Positions.from_position_ids(torch.tensor(at)) for at in (at_queries, at_keys)), q, k)
    tables = as_array(scheme.position_keys), as_array(scheme.position_queries)
    for row in range(2):
        wanted = reference.deberta_bias(q[row].numpy(), k[row].numpy(), at_queries, at_keys, *tables, shared)
        np.testing.assert_allclose(ours[row].detach().numpy(), wanted, rtol=0, atol=1e-14)


def test_its_gradients_are_those_of_the_reference():
    scheme, g = sampled(), draw(2, 3, 4, seed=3)
    q, k = draw(1, 2, 3, 4).requires_grad_(), draw(1, 2, 4, 4, seed=1).requires_grad_()
    at_queries, at_keys = np.array([0, 4, 30]), np.array([0, 1, 2, 28])
    given = [ww.Positions.from_position_ids(torch.tensor(at)) for at in (at_queries, at_keys)]
    table(scheme, *given, q, k)[0].backward(g)
    require_gradients(
        (q.grad[0], k.grad[0], scheme.position_keys.grad, scheme.position_queries.grad),
        lambda q, k, *tables: reference.deberta_bias(q, k, at_queries, at_keys, *tables, 9),
        (q[0], k[0], scheme.position_keys, scheme.position_queries),
        g,
    )


@pytest.mark.parametrize("engine", ["dense", "sdpa"])
@pytest.mark.parametrize("terms", [BOTH, C2P, P2C])
def test_attention_is_the_paper_s_sum_with_its_scale(terms, engine):
    """Through (queries, keys, heads, head_dim), which the scheme never makes."""
    scheme, p = sampled(terms=terms), ww.positions(7)
    q, k, v = (draw(2, 2, 7, 4, seed=n) for n in range(3))
    rows = scheme.rows(torch.arange(7)[:, None] - torch.arange(7))
    logits = q @ k.mT
    if "c2p" in terms:
        logits = logits + torch.einsum("bhid,ijhd->bhij", q, scheme.position_keys[rows])
    if "p2c" in terms:
        logits = logits + torch.einsum("bhjd,ijhd->bhij", k, scheme.position_queries[rows])
    logits = logits / math.sqrt(4 * (1 + len(terms)))
    for causal in (True, False):
        seen = logits.masked_fill(~p.mask(causal=causal), -torch.inf)
        y = ww.Where(score=scheme).at(p).attention(q, k, v, causal=causal, engine=engine)
        torch.testing.assert_close(y, seen.softmax(-1) @ v)


def test_grouped_keys_use_the_table_of_each_query_head():
    scheme, p = sampled(num_heads=4), ww.positions(5)
    q, k, v = draw(1, 4, 5, 4), draw(1, 2, 5, 4, seed=1), draw(1, 2, 5, 4, seed=2)
    here = ww.Where(score=scheme).at(p)
    repeated = here.attention(q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1))
    torch.testing.assert_close(here.attention(q, k, v), repeated)


def test_the_scale_counts_the_terms():
    assert ww.DeBERTa(16, 2, 4).scale == pytest.approx(1 / math.sqrt(3 * 16))
    for terms in (C2P, P2C, "c2p"):
        assert ww.DeBERTa(16, 2, 4, terms=terms).scale == pytest.approx(1 / math.sqrt(2 * 16))


def test_a_term_has_its_table_and_no_other():
    def names(terms):
        return set(ww.DeBERTa(4, 2, 4, terms=terms).state_dict())

    assert names(BOTH) == {"position_keys", "position_queries"}
    assert names(C2P) == {"position_keys"}
    assert names(P2C) == {"position_queries"}
    assert ww.DeBERTa(4, 2, 4, terms=("p2c", "c2p")).terms == BOTH


def test_clipping_maps_each_distance_to_a_row():
    rows = ww.DeBERTa(1, 1, max_distance=5).rows(torch.arange(-9, 10)).tolist()
    assert rows == [0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 9, 9, 9]


def test_shared_rows_are_wider_by_one_factor():
    """ln is cut into equal pieces: with M = 8, seven pieces from 8 to 1,023."""
    begins = [math.floor(8 * (1023 / 8) ** (m / 7) + 1e-9) + 1 for m in range(8)]
    assert edges(16, 1024) == tuple(begins)
    assert begins[0] == 9
    assert begins[-1] == 1024


def test_an_edge_that_is_a_whole_distance_is_not_missed():
    """9 (16 / 9) ** (4 / 8) is 12, so 12 is the last distance of row 9 + 4; in float32 it comes to the next."""
    assert int(ww.DeBERTa(1, 1, max_distance=17, position_buckets=18).rows(torch.tensor(12))) - 18 == 13
    assert float((torch.tensor(12 / 9).log() / torch.tensor(16 / 9).log() * 8).ceil()) == 5


def test_bfloat16_contents_are_multiplied_with_the_tables_in_float32():
    scheme, exact, p = sampled(head_dim=64).float(), sampled(head_dim=64), ww.positions(5)
    q, k = (draw(1, 2, 5, 64, seed=n).bfloat16() for n in range(2))
    wanted = table(exact, p, p, q.double(), k.double())
    assert table(scheme, p, p, q, k).dtype == torch.float32
    torch.testing.assert_close(table(scheme, p, p, q, k).double(), wanted, rtol=0, atol=1e-5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(table(scheme, p, p, q, k).double(), wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"head_dim": 0}, "head_dim=0"),
        ({"num_heads": 1.5}, "num_heads"),
        ({"max_distance": 0}, "max_distance=0"),
        ({"max_distance": 20, "position_buckets": 7}, "half of the rows"),
        ({"max_distance": 20, "position_buckets": 2}, "at least 4"),
        ({"max_distance": 5, "position_buckets": 8}, "max_distance=6 or more"),
        ({"position_buckets": 0}, "position_buckets=0"),
        ({"terms": ()}, "no terms"),
        ({"terms": ("p2p",)}, "knows only: c2p, p2c"),
        ({"terms": "both"}, "knows only: c2p, p2c"),
        ({"std": -1.0}, "std=-1.0"),
    ],
)
@pytest.mark.usefixtures("our_own_checks")
def test_settings_that_make_no_sense_raise(settings, text):
    with pytest.raises(ww.WhatWhereError, match=text):
        ww.DeBERTa(**{"head_dim": 8, "num_heads": 2, "max_distance": 4} | settings)


def test_it_needs_queries_and_keys_of_its_size():
    scheme, p, q = ww.DeBERTa(8, 2, 4), ww.positions(3), torch.ones(1, 2, 3, 8)
    with pytest.raises(ww.errors.DoorError, match="depends on queries and keys"):
        scheme(p)
    with pytest.raises(ww.errors.DoorError, match="q is missing"):
        scheme.bind(p, p, k=q)
    with pytest.raises(ww.errors.DoorError, match="k is missing"):
        scheme.bind(p, p, q=q)
    with pytest.raises(ww.errors.ShapeError, match="head_dim=8, but q has shape"):
        ww.Where(score=scheme).at(p).attention(q[..., :6], q[..., :6], q)


def test_it_can_be_copied_pickled_printed_and_reset():
    scheme = ww.DeBERTa(4, 2, 9, 6, terms=C2P, std=0.5)
    for other in (scheme, deepcopy(scheme), pickle.loads(pickle.dumps(scheme))):
        assert (
            repr(other)
            == "DeBERTa(head_dim=4, num_heads=2, max_distance=9, position_buckets=6, terms=('c2p',), std=0.5)"
        )
        assert torch.equal(other.position_keys, scheme.position_keys)
    before = scheme.position_keys.detach().clone()
    scheme.reset_parameters()
    assert bool((scheme.position_keys != before).any(-1).all())
    assert ww.DeBERTa(4, 2, device="meta", dtype=torch.float16).position_queries.dtype == torch.float16


def test_it_is_initialized_with_its_std():
    torch.manual_seed(0)
    scheme = ww.DeBERTa(64, 4, 64, std=0.3)
    for parameter in scheme.parameters():  # 32,768 values each: one standard error of the deviation is 0.4 %
        assert abs(float(parameter.detach().std()) / 0.3 - 1) < 0.02


def test_the_catalogue_has_a_row_for_each_trained_distance():
    scheme = ww.scheme("deberta", dim=16, num_heads=2, max_length=9).score
    assert (scheme.max_distance, scheme.position_buckets) == (9, None)
    assert scheme.rows(torch.arange(9)).unique().numel() == 9
