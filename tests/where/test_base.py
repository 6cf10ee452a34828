"""The three doors: what a scheme of one's own gets by standing behind one of them."""

import pytest
import torch

import whatwhere as ww


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
