"""Windows and chunks beside the masks of transformers: plain, left-padded, packed, and in both directions."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from transformers import masking_utils as theirs

import whatwhere as ww
from whatwhere import Window

TOKENS = 13
LEFT = torch.arange(TOKENS) >= torch.tensor([[0], [4]])
IDS = torch.tensor([[*range(5), *range(8)], [*range(13)]])
NO_PADDING = torch.tensor([0, 0])


def table(rule: Callable[..., Tensor], batch: int) -> Tensor:
    """Evaluate one of their mask functions at every pair."""
    mask = torch.empty(batch, 1, TOKENS, TOKENS, dtype=torch.bool)
    for b in range(batch):
        for i in range(TOKENS):
            for j in range(TOKENS):
                mask[b, 0, i, j] = bool(rule(*map(torch.tensor, (b, 0, i, j))))
    return mask


def causal_rule(window: Window, padding: Tensor) -> Callable[..., Tensor]:
    if window.chunked:
        return theirs.chunked_causal_mask_function(window.size, padding)
    return theirs.sliding_window_causal_mask_function(window.size)


WINDOWS = [Window(3), Window(1), Window(4, chunked=True), Window(20)]


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_plain(window: Window) -> None:
    p = ww.positions(TOKENS)
    assert torch.equal(p.mask() & window.mask(p), table(causal_rule(window, NO_PADDING), 1))


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_left_padded(window: Window) -> None:
    """Their padding mask hides keys alone; what a query at padding sees does not matter."""
    p = ww.Positions.from_mask(LEFT)
    rule = theirs.and_masks(causal_rule(window, (~LEFT).sum(1)), theirs.padding_mask_function(LEFT))
    real = LEFT[:, None, :, None]
    assert torch.equal(p.mask() & window.mask(p) & real, table(rule, 2) & real)


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_packed(window: Window) -> None:
    documents = theirs.find_packed_sequence_indices(IDS)
    rule = theirs.packed_sequence_compatibility_function(causal_rule(window, NO_PADDING), IDS, documents)
    expected = table(rule, 2)
    p = ww.Positions.from_position_ids(IDS)
    assert torch.equal(p.mask() & window.mask(p), expected)
    first = ww.Positions.packed([5, 8])
    assert torch.equal(first.mask() & window.mask(first), expected[:1])


@pytest.mark.parametrize("size", [1, 3, 20])
def test_both_directions(size: int) -> None:
    """Theirs includes the distance of the size; so does what the reader makes of their configurations."""
    p = ww.positions(TOKENS)
    expected = table(theirs.sliding_window_bidirectional_mask_function(size), 1)
    assert torch.equal(Window(size + 1).mask(p), expected)
