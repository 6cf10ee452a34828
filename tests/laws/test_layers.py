"""Mixtures by layer: one scheme in some layers, another or none in others, bound together by `ww.bind`."""

from itertools import cycle

import pytest
import torch

import whatwhere as ww
from whatwhere.comparison.model import build_wheres

from . import laws
from .cases import DIM, HEADS, LEFT, MAX_LENGTH
from .model import Model, random_ids

MIXTURES = ("rotary/none", "none/rotary", "rotary/alibi", "rotary+alibi/none", "learned+rotary/rotary", "ssmax/fox")
MIXTURES += ("rotary/temperature@length=2",)
POSITIONS = {
    "run": ww.positions(8),
    "other starts": ww.positions(8, start=torch.tensor([0, 9])),
    "packed": ww.Positions.packed([2, 6]),
    "left-padded": ww.Positions.from_mask(LEFT),
}


class Layers:
    """What the laws' model is built of: each call gives the Where of the next layer."""

    regime = None

    def __init__(self, mixture: str) -> None:
        self.wheres = cycle(build_wheres(mixture, DIM, HEADS, MAX_LENGTH, layers=2))

    def build(self, max_length: int) -> ww.Where:
        assert max_length == MAX_LENGTH
        return next(self.wheres)


def model(mixture: str) -> Model:
    torch.manual_seed(0)
    return Model(Layers(mixture)).eval()


@pytest.mark.parametrize("mixture", MIXTURES)
@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("first", [1, 5])
def test_decoding_with_caches_equals_prefill(first, positions, mixture):
    laws.decoding_equals_prefill(model(mixture), POSITIONS[positions], first)


@pytest.mark.parametrize("mixture", MIXTURES)
def test_packed_equals_separate(mixture):
    laws.packed_equals_separate(model(mixture), (3, 1, 5))


@pytest.mark.parametrize("mixture", MIXTURES)
@pytest.mark.parametrize("mask", [LEFT, LEFT.flip(-1)], ids=["left", "right"])
def test_padded_equals_unpadded(mask, mixture):
    laws.padded_equals_unpadded(model(mixture), mask)


@pytest.mark.parametrize("mixture", MIXTURES)
@pytest.mark.parametrize("positions", POSITIONS)
def test_engines_agree(positions, mixture):
    laws.engines_agree(model(mixture), POSITIONS[positions], "sdpa")


@pytest.mark.compile
def test_a_mixture_compiles_at_most_twice():
    laws.compiles_at_most_twice(lambda n: (random_ids(2, n, seed=n),), model("rotary/none"), (5, 6, 9, 13, 31))
