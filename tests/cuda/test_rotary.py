"""The rotation on a GPU equals PyTorch's operations to the bit."""

import pytest
import torch

from whatwhere.kernels.rotary import rotate_in_pytorch

from ..kernels.inputs import LAYOUTS, rotary_tables, sampled

rotary = pytest.importorskip("whatwhere.kernels.cuda.rotary", reason="needs Triton, which is not installed here")

SHAPES = [(2, 5, 7, 16, 8), (1, 3, 4, 20, 6), (2, 1, 1, 2, 1), (1, 1, 3, 40, 4), (1, 2, 3, 6, 0)]
"""batch, heads, tokens, features, pairs: sizes that are not powers of two, features that stay, and no rotation."""


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_rotation_equals_that_of_pytorch(shape, interleaved, dtype, target, equal):
    batch, heads, tokens, features, pairs = shape
    x = sampled(batch, heads, tokens, features, device=target, dtype=dtype)
    cos, sin = rotary_tables(1, 1, tokens, pairs, device=target)
    equal(rotary.rotate(x, cos, sin, interleaved), rotate_in_pytorch(x, cos, sin, interleaved))
    equal(rotary.rotate(x, cos, sin, interleaved, back=True), rotate_in_pytorch(x, cos, -sin, interleaved))


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("rows", [(1, 1), (3, 1), (1, 4), (3, 4)])
def test_tables_of_each_sequence_and_each_head(rows, interleaved, target, equal):
    x, (cos, sin) = sampled(3, 4, 5, 12, device=target), rotary_tables(*rows, 5, 4, device=target)
    equal(rotary.rotate(x, cos, sin, interleaved), rotate_in_pytorch(x, cos, sin, interleaved))


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_strides(layout, interleaved, target, equal):
    x, (cos, sin) = LAYOUTS[layout](sampled(2, 4, 5, 12, device=target)), rotary_tables(1, 1, 5, 4, device=target)
    equal(rotary.rotate(x, cos, sin, interleaved), rotate_in_pytorch(x, cos, sin, interleaved))


def test_tables_of_different_strides(target, equal):
    x, (cos, sin) = sampled(2, 4, 5, 12, device=target), rotary_tables(1, 1, 5, 6, device=target)
    sin = sin.mT.contiguous().mT
    equal(rotary.rotate(x, cos, sin, False), rotate_in_pytorch(x, cos, sin, False))


@pytest.mark.parametrize("interleaved", [False, True])
def test_in_place(interleaved, target, equal):
    """Nothing beside the rows is touched, and features without an angle stay."""
    held = sampled(2, 5, 4, 30, device=target)
    before, x = held.clone(), held[..., 8:20].transpose(1, 2)
    cos, sin = rotary_tables(1, 1, 5, 4, device=target)
    wanted = rotate_in_pytorch(x, cos, sin, interleaved)
    assert rotary.rotate(x, cos, sin, interleaved, out=x) is x
    equal(x, wanted)
    equal(held[..., :8], before[..., :8])
    equal(held[..., 16:], before[..., 16:])


def test_blocks_of_several_tokens_heads_and_features(target, equal, monkeypatch):
    """As many as a program takes, and more: every axis of the grid is used."""
    monkeypatch.setattr(rotary, "_PAIRS_OF_A_PROGRAM", 16)
    monkeypatch.setattr(rotary, "_MAX_BLOCK", 4)
    for interleaved in (False, True):
        x, (cos, sin) = sampled(2, 3, 5, 40, device=target), rotary_tables(2, 1, 5, 9, device=target)
        equal(rotary.rotate(x, cos, sin, interleaved), rotate_in_pytorch(x, cos, sin, interleaved))


@pytest.mark.parametrize("shape", [(0, 2, 3, 4), (2, 0, 3, 4), (2, 2, 0, 4)])
def test_empty_tensors(shape, target):
    x, (cos, sin) = torch.empty(shape, device=target), rotary_tables(1, 1, shape[2], 2, device=target)
    assert rotary.rotate(x, cos, sin, False).shape == shape


@pytest.mark.cuda
@pytest.mark.parametrize("interleaved", [False, True])
def test_more_numbers_than_32_bits_count(interleaved, device):
    """17 million rows of 128 numbers are 2**31 and more; the last rows are compared."""
    if device.type != "cuda" or torch.cuda.mem_get_info()[0] < 16 * 2**30:
        pytest.skip("needs 16 GB of free memory on a GPU")
    tokens = 2**24 + 5
    x = torch.zeros(1, 1, tokens, 128, dtype=torch.bfloat16, device=device)
    x[:, :, -9:] = sampled(1, 1, 9, 128, device=device).bfloat16()
    cos, sin = (part.expand(1, 1, tokens, 64) for part in rotary_tables(1, 1, 1, 64, device=device))
    y = rotary.rotate(x, cos, sin, interleaved, out=x.clone())[:, :, -9:]
    assert torch.equal(y, rotate_in_pytorch(x[:, :, -9:], cos[:, :, -9:], sin[:, :, -9:], interleaved))
