"""Selective RoPE: rotations by sums of a convolution of what tokens decide."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import whatwhere as ww
from tests.samples import draw

DIM, HEAD_DIM, HEADS, TOKENS = 12, 8, 3, 7


def trained(dtype=torch.float32, **settings):
    """Return a scheme whose tokens add angles of about 1."""
    scheme = ww.SelectiveRoPE(DIM, HEAD_DIM, HEADS, rank=5, dtype=dtype, **settings)
    with torch.no_grad():
        for n, parameter in enumerate(scheme.parameters()):
            parameter.copy_(draw(*parameter.shape, seed=20 + n))
    return scheme


def attend(where, p, x, q, k, v):
    here = where.at(p)
    return here.attention(*here.query_key(q, k, increments=here.increments(x)), v)


def vectors(tokens=TOKENS, batch=1, dtype=torch.float32):
    heads = (draw(batch, HEADS, tokens, HEAD_DIM, seed=n, dtype=dtype) for n in (2, 3, 4))
    return draw(batch, tokens, DIM, seed=1, dtype=dtype), *heads


@pytest.mark.parametrize("gate", [False, True])
def test_convolution_and_sums_begin_with_each_document(gate):
    """Packed, or padded on the left, on the right or in between, in any order: each text has its own angles."""
    scheme, (x, *_) = trained(gate=gate), vectors(9)
    increments = scheme.increments(x)
    first, second = (scheme.angles(ww.positions(part.shape[2]), part) for part in increments.split([5, 4], 2))
    packed = scheme.angles(ww.Positions.packed([5, 4]), increments)
    assert_close(packed[:, :, :5], first)
    assert_close(packed[:, :, 5:] - packed[:, :, 4:5], second)
    for mask in ([0, 0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0, 0], [1, 0, 1, 1, 0, 1, 1]):
        real = torch.tensor(mask).nonzero()[:, 0]
        noise = draw(1, HEADS, 7, increments.shape[-1], seed=7)
        noise[:, :, real] = increments[:, :, :5]
        padded = scheme.angles(ww.Positions.from_mask(torch.tensor([mask])), noise)
        assert_close(padded[:, :, real], first)
    order = torch.tensor([3, 8, 0, 5, 1, 7, 4, 2, 6])
    shuffled = scheme.angles(ww.Positions.packed([5, 4]).take(order), increments[:, :, order])
    assert_close(shuffled, packed[:, :, order])


def test_angles_far_from_the_start_are_exact():
    """A sum of a million increments in float32 would have lost digits."""
    scheme, n = ww.SelectiveRoPE(1, 2, 1), 1_000_000
    with torch.no_grad():
        scheme.convolution.copy_(torch.tensor([0.0, 0.0, 0.0, 1.0]))
    scheme.requires_grad_(False)
    increments = torch.full((1, 1, n, 1), 0.3)
    p = ww.positions(n)
    (cos, sin), _ = scheme.bind_content(p[-2:], p, increments)
    exact = float(increments[0, 0, 0, 0].double()) * np.array([n - 1, n])
    np.testing.assert_allclose(cos[0, 0, :, 0].numpy(), np.cos(exact), rtol=0, atol=1e-6)
    np.testing.assert_allclose(sin[0, 0, :, 0].numpy(), np.sin(exact), rtol=0, atol=1e-6)


@pytest.mark.compile
@pytest.mark.parametrize("name", ["carope", "selective"])
def test_gradients_through_aot_eager_are_those_of_eager(name):
    """That of PyTorch's softplus has strides that torch.compile predicts wrongly, and the backward pass failed."""
    scheme = trained(gate=True) if name == "selective" else ww.CARoPE(DIM, HEAD_DIM, HEADS)
    where, inputs, p = ww.Where(scheme), vectors(batch=2), ww.Positions.packed([2, 5])
    gradients = []
    for run in (attend, torch.compile(attend, backend="aot_eager", fullgraph=True)):
        scheme.zero_grad()
        run(where, p, *inputs).square().sum().backward()
        gradients.append([parameter.grad.clone() for parameter in scheme.parameters()])
    assert_close(*gradients, rtol=1e-4, atol=1e-5)


def test_no_weights_are_no_positions():
    scheme, inputs = ww.SelectiveRoPE(DIM, HEAD_DIM, HEADS), vectors()
    with torch.no_grad():
        for parameter in scheme.parameters():
            parameter.zero_()
    here = ww.Where().at(TOKENS)
    assert_close(attend(ww.Where(scheme), TOKENS, *inputs), here.attention(*inputs[1:]))
