"""Learned: rows before position 0, and a table interpolated to another length or grid."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import whatwhere as ww
from whatwhere import reference
from whatwhere.where.input.learned import resized_grid, resized_rows

RULES, ALIGNS = ("linear", "cubic"), ("ends", "cells")


def sampled(*sizes, **settings):
    torch.manual_seed(0)
    return ww.Learned(*sizes, **settings)


@pytest.mark.parametrize("offset", [0, 2, 5])
def test_a_position_reads_the_row_of_its_offset(offset):
    scheme = sampled(4, 10, offset)
    assert scheme.weight.shape == (10 + offset, 4)
    assert torch.equal(scheme(ww.positions(10))[0], scheme.weight[offset:])
    with pytest.raises(ww.errors.PositionError, match=r"position 10 is beyond this table, which has 10 positions \(0"):
        scheme(ww.positions(11))
    scheme.require_defined(ww.positions(10))
    with pytest.raises(ww.errors.PositionError, match="whatwhere resize --positions"):
        scheme.require_defined(ww.positions(2, start=9))


MASKS = {
    "whole": [[1, 1, 1, 1]],
    "padded right": [[1, 1, 0, 0]],
    "padded left": [[0, 0, 1, 1]],
    "both": [[1, 1, 1, 1], [0, 1, 1, 0]],
}


@pytest.mark.parametrize("scheme", [ww.Learned(4, 12, offset=2), ww.Sinusoidal(4, offset=2)], ids=["table", "waves"])
@pytest.mark.parametrize("padding", MASKS)
def test_position_ids_that_count_from_the_offset_are_refused(padding, scheme):
    """RoBERTa's of padding_idx 1: its own would have added the offset twice, and read the rows two further on."""
    mask = torch.tensor(MASKS[padding])
    ids = mask.cumsum(1) * mask + 1
    layer, tokens = ww.InputLayer(5, 4, input=scheme), torch.ones_like(ids)
    for given in (ids, ww.Positions.from_position_ids(ids), ww.Positions.from_position_ids(ids)[:3]):
        with pytest.raises(ww.errors.PositionError, match=r"begin at [12], .* offset=2.*\n.*from_mask"):
            scheme(given)
    with pytest.raises(ww.errors.PositionError, match=r"begin at [12], "):
        layer(tokens, ids)
    right = layer(tokens, ww.Positions.from_mask(mask)) - layer.tokens(tokens)
    rows = scheme.weight if isinstance(scheme, ww.Learned) else ww.Sinusoidal(4)(ww.positions(14))[0]
    torch.testing.assert_close(right[mask.bool()], rows[ids[mask.bool()]])


def test_positions_that_begin_at_the_offset_are_read():
    """A step of decoding, a part of a longer sequence, and where no row comes before that of position 0."""
    scheme, ids = sampled(4, 12, 2), torch.arange(8)
    for given, first in (
        (torch.tensor([2]), 4),
        (ids, 2),
        (ww.positions(3, start=2), 4),
        (ww.Positions.from_position_ids(ids)[2:5], 4),
        (ww.positions(2).append(1)[-1:], 4),
    ):
        assert torch.equal(scheme(given)[0, 0], scheme.weight[first])
    assert torch.equal(sampled(4, 12)(ids[2:])[0], sampled(4, 12).weight[2:8])


@pytest.mark.parametrize("scheme", [ww.Learned(4, 12), ww.Sinusoidal(4), ww.Fourier(4, 12)])
def test_a_position_has_its_vector_as_often_as_wanted(scheme):
    """As of a row of padding, whose position ids are 1 in transformers."""
    assert torch.equal(scheme(torch.tensor([[1, 1, 1], [1, 1, 0]]))[0], scheme(torch.tensor([[0, 1]]))[0, [1, 1, 1]])


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("align", ALIGNS)
@pytest.mark.parametrize(("old", "new"), [(4, 9), (9, 4), (5, 5), (1, 3), (3, 1), (7, 8)])
def test_another_length_is_the_references(old, new, align, rule):
    scheme = sampled(3, old, dtype=torch.float64)
    resized = scheme.resized(new, rule, align)
    wanted = reference.resized_rows(scheme.weight.detach().numpy(), new, rule, align)
    np.testing.assert_allclose(resized.weight.detach().numpy(), wanted, rtol=0, atol=1e-13)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("align", ALIGNS)
@pytest.mark.parametrize(("old", "new"), [((3, 4), (5, 7)), ((5, 7), (3, 4)), ((2, 3), (3, 2)), ((4, 4), (4, 6))])
def test_another_grid_is_the_references(old, new, align, rule):
    scheme = sampled(3, old[0] * old[1], dtype=torch.float64)
    resized = scheme.resized_grid(old, new, rule=rule, align=align)
    wanted = reference.resized_grid(scheme.weight.detach().numpy(), old, new, rule, align)
    np.testing.assert_allclose(resized.weight.detach().numpy(), wanted, rtol=0, atol=1e-13)


@pytest.mark.parametrize("new", [(7, 9), (2, 3)])
def test_antialias_is_pytorchs(new):
    """As timm resizes: its kernel has a = -1/2, and is wider where the grid shrinks."""
    scheme = sampled(3, 20)
    image = scheme.weight.detach().unflatten(0, (4, 5)).permute(2, 0, 1)[None]
    wanted = F.interpolate(image, size=new, mode="bicubic", antialias=True)[0].permute(1, 2, 0).flatten(0, 1)
    resized = scheme.resized_grid((4, 5), new, antialias=True).weight.detach()
    torch.testing.assert_close(resized, wanted, rtol=0, atol=1e-7)
    assert (resized - scheme.resized_grid((4, 5), new).weight.detach()).abs().max() > 1e-4


@pytest.mark.parametrize("offset", [0, 2])
def test_rows_before_the_offset_are_kept(offset):
    scheme = sampled(3, 1 + 6, offset)
    longer, wider = scheme.resized(11), scheme.resized_grid((2, 3), (4, 5), prefix=1)
    assert (longer.max_length, wider.max_length) == (11, 21)
    assert longer.offset == wider.offset == offset
    assert torch.equal(longer.weight[:offset], scheme.weight[:offset])
    assert torch.equal(wider.weight[: offset + 1], scheme.weight[: offset + 1])
    patches = resized_grid(scheme.weight[offset + 1 :].detach(), (2, 3), (4, 5))
    assert torch.equal(wider(ww.positions(21))[0, 1:], patches)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_interpolated_rows_are_rounded_once(dtype):
    """Between 4096 rows, a float32 coordinate would be off by a thousandth of a row."""
    rows = torch.randn(4096, 3, generator=torch.Generator().manual_seed(0)).to(dtype)
    exact = torch.from_numpy(reference.resized_rows(rows.double().numpy(), 16_000, "linear", "ends"))
    off = (resized_rows(rows, 16_000).double() - exact).abs()
    assert (off <= exact.abs() * torch.finfo(dtype).eps / 2 + 1e-12).all()


def test_a_resized_table_is_a_new_one():
    scheme = sampled(3, 8, 1, std=0.5, dtype=torch.bfloat16).eval()
    before = scheme.weight.detach().clone()
    for resized in (scheme.resized(8), scheme.resized(20), scheme.resized_grid((2, 4), (4, 4))):
        assert isinstance(resized, ww.Learned)
        assert (resized.std, resized.weight.dtype, resized.training) == (0.5, torch.bfloat16, False)
        assert isinstance(resized.weight, torch.nn.Parameter)
        assert resized.weight.requires_grad
        resized.weight.data.zero_()
    assert torch.equal(scheme.weight, before)
    scheme.weight.requires_grad_(False)
    assert not scheme.resized(20).weight.requires_grad
    assert ww.Learned(3, 8, device="meta").resized(20).weight.shape == (20, 3)


def test_bfloat16_rows_are_interpolated_in_float64():
    rows = torch.randn(9, 3, generator=torch.Generator().manual_seed(0)).bfloat16()
    for rule in RULES:
        assert torch.equal(resized_rows(rows, 30, rule), resized_rows(rows.double(), 30, rule).bfloat16())
