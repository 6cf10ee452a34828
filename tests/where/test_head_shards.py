"""Schemes of some of the heads: their outputs side by side are those of all heads."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import whatwhere as ww
from whatwhere.errors import SettingError
from whatwhere.parallel import heads_of
from whatwhere.where.attention import Sink
from whatwhere.where.query_key.fope import FoPE
from whatwhere.where.query_key.mixed_rotary import MixedRotary
from whatwhere.where.score_bias import DistanceBias

HEADS, DIM, TOKENS = 4, 64, 9
TWO_AXES = ("axial", "mixed", "swin", "sam")
SPLITS = ([(0, 2), (2, 2)], [(0, 1), (1, 3)])


def attend(where: ww.Where, x: Tensor, q: Tensor, k: Tensor, v: Tensor, positions: ww.Positions) -> Tensor:
    here = where.at(positions)
    q, k = here.query_key(q, k, increments=here.increments(x))
    causal = positions.axes == 1
    return here.attention(q, k, v, gates=here.gates(x), causal=causal)


def disturbed(where: ww.Where) -> ww.Where:
    """Give all parameters values of their own, so that equal heads are not mistaken for one another."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in where.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return where


def cases() -> dict[str, ww.Where]:
    wheres = {name: ww.scheme(name, dim=DIM, num_heads=HEADS, max_length=32) for name in ww.catalogue}
    wheres |= {
        "sets of fope": ww.Where(FoPE(16, 32, sets=2)),
        "sets of mixed": ww.Where(MixedRotary(16, sets=4)),
        "nested": ww.Where(ww.SSMax(16, HEADS, then=FoPE(16, 32, sets=4))),
        "sink": ww.Where(ww.Rotary(16), ww.ALiBi(HEADS), sink=Sink(HEADS), window=5, scale=0.2),
        "chosen slopes": ww.Where(ww.ALiBi(HEADS, slopes=(0.5, 0.1, 0.3, 0.2))),
    }
    return wheres


CASES = cases()
LEARNED = [
    name for name, w in CASES.items() if any([*part.parameters()] for part in (w.query_key, w.score, w.sink) if part)
]


def attention_of(name: str) -> Callable[[ww.Where, slice], Tensor]:
    """Return the attention of some heads of the same float64 numbers, at positions that suit a case."""
    positions = ww.Positions.grid(3, 3) if any(part in name for part in TWO_AXES) else ww.positions(TOKENS)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, TOKENS, DIM, generator=generator, dtype=torch.float64)
    q, k, v = (torch.randn(2, HEADS, TOKENS, 16, generator=generator, dtype=torch.float64) for _ in range(3))
    return lambda where, own: attend(where, x, q[:, own], k[:, own], v[:, own], positions)


@pytest.mark.parametrize("name", CASES)
def test_shards_side_by_side_equal_the_whole(name: str) -> None:
    where, run = disturbed(CASES[name]).double(), attention_of(name)
    whole = run(where, slice(HEADS))
    for split in SPLITS:
        if name == "sets of fope" and split == SPLITS[1]:
            continue
        parts = []
        for first, count in split:
            parts.append(run(where.heads(first, count, total=HEADS), slice(first, first + count)))
        torch.testing.assert_close(torch.cat(parts, dim=1), whole, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_slices_of_the_parameters_make_the_whole_again(name: str) -> None:
    where = disturbed(CASES[name])
    shards = [where.heads(first, 2, total=HEADS) for first in (0, 2)]
    for path, module in where.named_modules():
        for parameter, axis in (getattr(module, "head_axes", None) or {}).items():
            if (whole := getattr(module, parameter)) is None:
                continue
            slices = [shard.get_submodule(path).get_parameter(parameter) for shard in shards]
            if getattr(module, "sets", HEADS) > 1:
                torch.testing.assert_close(torch.cat(slices, dim=axis), whole, rtol=0, atol=0)
            else:
                assert all(torch.equal(each, whole) for each in slices)
            assert all(each.data_ptr() != whole.data_ptr() for each in slices)


@pytest.mark.parametrize("name", LEARNED)
def test_gradients_of_slices_are_those_of_the_whole_and_the_others_are_to_be_summed(name: str) -> None:
    where, run = disturbed(CASES[name]).double(), attention_of(name)
    run(where, slice(HEADS)).square().sum().backward()
    shards = [where.heads(first, 2, total=HEADS) for first in (0, 2)]
    for shard, own in zip(shards, (slice(0, 2), slice(2, 4)), strict=True):
        run(shard, own).square().sum().backward()
    for path, module in where.named_modules():
        parts = [shard.get_submodule(path) for shard in shards]
        sliced: frozenset[str] = getattr(parts[0], "sliced_parameters", frozenset())
        for key, whole in module.named_parameters(recurse=False):
            grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in (n.get_parameter(key) for n in parts)]
            found = torch.cat(grads, dim=module.head_axes[key]) if key in sliced else sum(grads)
            wanted = torch.zeros_like(whole) if whole.grad is None else whole.grad
            torch.testing.assert_close(found, wanted, atol=1e-12, rtol=1e-10)


def test_grouped_queries_have_the_sets_of_their_keys() -> None:
    where = disturbed(ww.Where(FoPE(16, 32, sets=2)))
    q, k = torch.randn(1, 4, TOKENS, 16), torch.randn(1, 2, TOKENS, 16)
    whole = where.at(TOKENS).attention(*where.at(TOKENS).query_key(q, k), k)
    parts = []
    for n in range(2):
        here = where.heads(2 * n, 2, total=4).at(TOKENS)
        own = k[:, n : n + 1]
        parts.append(here.attention(*here.query_key(q[:, 2 * n : 2 * n + 2], own), own))
    torch.testing.assert_close(torch.cat(parts, dim=1), whole)


def test_layers_that_share_a_scheme_share_its_copy() -> None:
    t5, rotary = ww.T5(HEADS), ww.Rotary(16)
    layers = heads_of([ww.Where(rotary, t5), ww.Where(rotary, t5, window=4)], 1, 2)
    assert layers[0].score is layers[1].score
    assert layers[0].query_key is layers[1].query_key
    assert [layer.window is None for layer in layers] == [True, False]


def test_a_shard_is_printed_as_code_and_sharded_again() -> None:
    for where in (ww.Where(ww.ALiBi(8)), ww.Where(ww.Sandwich(8, 4))):
        shard = where.heads(2, 4)
        again = eval(str(shard), vars(ww))
        torch.testing.assert_close(again.score(5), where.score(5)[:, 2:6])
        torch.testing.assert_close(shard.heads(1, 2).score(5), where.score(5)[:, 3:5])


class Own(DistanceBias):
    """A bias of one's own, whose heads differ in a way that only it knows."""

    num_heads = 2

    def curve(self, device):
        return lambda head, distance: head * distance.to(torch.float32)


def test_a_scheme_that_does_not_say_how_is_not_split() -> None:
    with pytest.raises(SettingError, match="head_axes"):
        ww.Where(Own()).heads(0, 1)
