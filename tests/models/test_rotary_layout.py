"""Weights in the interleaved and the half layout: converted there and back, and distinguished."""

import pytest
import torch
from torch import Tensor

import whatwhere as ww
from whatwhere import rotary_layout

HEADS, KEY_HEADS, HEAD_DIM, DIM = 4, 2, 8, 12


def llama_permute(weight: Tensor, heads: int) -> Tensor:
    """Move Meta's rows to Hugging Face's, in the words of their own converter: heads, pairs, 2."""
    rows, columns = weight.shape
    return weight.view(heads, rows // heads // 2, 2, columns).transpose(1, 2).reshape(rows, columns)


@pytest.mark.parametrize("heads", [HEADS, KEY_HEADS])
def test_as_the_converter_of_llama(heads: int) -> None:
    weight = torch.randn(heads * HEAD_DIM, DIM)
    assert torch.equal(rotary_layout.to_half(weight, heads), llama_permute(weight, heads))


@pytest.mark.parametrize("rotary_dim", [None, 2, 6])
@pytest.mark.parametrize(
    "shape", [(HEADS * HEAD_DIM, DIM), (HEADS * HEAD_DIM,), (2, HEADS, 5, HEAD_DIM), (HEADS, 5, HEAD_DIM)]
)
def test_there_and_back(shape: tuple[int, ...], rotary_dim: int | None) -> None:
    x = torch.randn(shape)
    there = rotary_layout.to_interleaved(x, HEADS, rotary_dim)
    assert torch.equal(rotary_layout.to_half(there, HEADS, rotary_dim), x)
    assert torch.equal(rotary_layout.to_interleaved(rotary_layout.to_half(x, HEADS, rotary_dim), HEADS, rotary_dim), x)
    assert torch.equal(there, x) == (rotary_dim == 2)


def test_activations_move_as_weights_do() -> None:
    x, weight = torch.randn(2, 7, DIM), torch.randn(HEADS * HEAD_DIM, DIM)
    weights = weight, rotary_layout.to_interleaved(weight, HEADS)
    heads, moved = ((x @ each.T).unflatten(-1, (HEADS, HEAD_DIM)).transpose(1, 2) for each in weights)
    torch.testing.assert_close(rotary_layout.to_interleaved(heads, HEADS), moved)


def test_which() -> None:
    half, biases = torch.randn(HEADS * HEAD_DIM, DIM), torch.randn(HEADS * HEAD_DIM)
    for weight in (half, biases):
        interleaved = rotary_layout.to_interleaved(weight, HEADS)
        assert rotary_layout.which(interleaved, weight, HEADS) == "interleaved"
        assert rotary_layout.which(weight, interleaved, HEADS) == "half"
        assert rotary_layout.which(weight, weight.clone(), HEADS) == "same"
    partial = rotary_layout.to_interleaved(half, HEADS, rotary_dim=6)
    assert rotary_layout.which(partial, half, HEADS, rotary_dim=6) == "interleaved"


@pytest.mark.usefixtures("our_own_checks")
def test_which_refuses_to_guess() -> None:
    half = torch.randn(HEADS * HEAD_DIM, DIM)
    for weight, rotary_dim, error, message in (
        (torch.randn_like(half), None, ww.errors.CheckpointError, "the two weights are not the same"),
        (rotary_layout.to_interleaved(half, KEY_HEADS), None, ww.errors.CheckpointError, "the number of key heads"),
        (rotary_layout.to_interleaved(half, HEADS, 4), 4, ww.errors.SettingError, "its own inverse"),
        (half[1:], None, ww.errors.ShapeError, "a weight has the same shape in both files"),
    ):
        with pytest.raises(error, match=message):
            rotary_layout.which(weight, half, HEADS, rotary_dim)


@pytest.mark.parametrize(
    ("shape", "heads", "rotary_dim", "message"),
    [
        ((30, 4), 4, None, "30 rows do not divide into 4 heads of equal size"),
        ((12, 4), 4, None, "rotary_layout got rotary_dim=3, but needs an even number"),
        ((32, 4), 4, 10, "rotary_dim=10, but a head has only 8 features"),
        ((32, 4), 0, None, "num_heads=0"),
        ((2, 5, 4, 8), 4, None, r"If tokens and heads are swapped, pass x.transpose\(-3, -2\)"),
        ((), 1, None, "a single number"),
    ],
)
def test_errors(shape: tuple[int, ...], heads: int, rotary_dim: int | None, message: str) -> None:
    with pytest.raises(ww.errors.ShapeError, match=message):
        rotary_layout.to_interleaved(torch.zeros(shape), heads, rotary_dim)
