"""The three doors: what a scheme of one's own gets by standing behind one of them."""

import pytest
import torch
from torch import nn

import whatwhere as ww


class Ramp(ww.InputEncoding):
    """The position itself, in every feature."""

    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, positions):
        p = positions.index[0] if isinstance(positions, ww.Positions) else positions[None]
        return p[..., None].float().expand(*p.shape, self.dim)


class Stretch(ww.QueryKeyMap):
    """Queries times their position, keys divided by theirs plus one, with one feature more."""

    def __init__(self, head_dim):
        super().__init__()
        self.head_dim = head_dim
        self.bound = 0

    def bind(self, positions):
        self.bound += 1
        return (positions.index[0][:, None, :, None].float(),)

    def map_query(self, q, bound):
        return nn.functional.pad(q * bound[0], (0, 1))

    def map_key(self, k, bound):
        return nn.functional.pad(k / (1 + bound[0]), (0, 1))


class Sum(ww.ScoreBias):
    """Head plus query position times ten plus key position: every entry tells where it is from."""

    def __init__(self, num_heads):
        super().__init__()
        self.num_heads = num_heads

    def bind(self, queries, keys, *, q=None, k=None, gates=None, causal=True):
        at_query, at_key = queries.index[0], keys.index[0]

        def element(b, h, i, j):
            return 1000.0 * h + 10 * at_query[b % len(at_query), i] + at_key[b % len(at_key), j]

        return element


@pytest.mark.parametrize(
    ("door", "missing"),
    [(ww.InputEncoding, "forward"), (ww.QueryKeyMap, "bind"), (ww.ScoreBias, "bind")],
    ids=["input", "query_key", "score"],
)
def test_a_door_is_no_scheme(door, missing):
    with pytest.raises(TypeError, match=missing):
        door()


def test_a_custom_input_scheme_works_in_the_layer():
    layer = ww.InputLayer(5, 4, input=Ramp(4))
    ids = torch.zeros(1, 3, dtype=torch.int64)
    added = layer(ids, ww.positions(3, start=2)) - layer.tokens.weight[0]
    assert torch.allclose(added, torch.tensor([2.0, 3.0, 4.0])[:, None].expand(1, 3, 4), atol=1e-6)


def test_a_custom_map_is_bound_once_for_each_of_the_positions():
    scheme = Stretch(4)
    q = torch.ones(1, 2, 3, 4)
    for queries, keys, times in ((ww.positions(3), None, 1), (ww.positions(1, start=2), torch.arange(3), 3)):
        mapped_q, mapped_k = scheme(q[:, :, : queries.tokens], q, queries, keys)
        assert scheme.bound == times
        assert mapped_q[0, 0].tolist() == [[p] * 4 + [0] for p in queries.index.flatten().tolist()]
        assert torch.allclose(mapped_k[0, 0, :, 0], torch.tensor([1, 1 / 2, 1 / 3]))


def test_a_map_may_change_the_number_of_features():
    q = torch.randn(1, 2, 3, 4)
    here = ww.Where(query_key=Stretch(4)).at(ww.positions(3))
    mapped = here.query_key(q, q)
    assert [x.shape[-1] for x in mapped] == [5, 5]
    assert here.attention(*mapped, q).shape == (1, 2, 3, 4)


def test_a_bias_is_written_once_and_tabulated():
    table = Sum(3)(ww.positions(2, start=4), ww.positions(3, start=torch.tensor([0, 5])))
    assert table.shape == (2, 3, 2, 3)
    for b, first in enumerate((0, 5)):
        for h in range(3):
            for i in range(2):
                assert table[b, h, i].tolist() == [1000 * h + 10 * (4 + i) + first + j for j in range(3)]


def test_a_causal_bias_is_not_evaluated_for_later_keys():
    class Backward(Sum):
        causal_only = True

    scheme, p, q = Backward(1), ww.positions(2), torch.zeros(1, 1, 2, 4)
    message = "Backward supports causal attention only, but got causal=False.\nPass causal=True"
    with pytest.raises(ww.errors.SettingError, match=message):
        scheme(p)
    with pytest.raises(ww.errors.SettingError, match=message):
        ww.Where(score=scheme).at(p).attention(q, q, q, causal=False)
    assert scheme(p, causal=True)[0, 0].tolist() == [[0, -torch.inf], [10, 11]]
    assert ww.Where(score=scheme).at(p).attention(q, q, q).shape == q.shape
