"""Positions of images and videos: real coordinates, centers of patches, M-RoPE; and who refuses them."""

import copy

import pytest
import torch

import whatwhere as ww
from whatwhere.errors import PositionError
from whatwhere.where.region_map import region_map_of

REAL = ww.Positions.from_coordinates(torch.tensor([0.5, -1.25, 3.0]))
ANGLES = ("sinusoidal", "sinusoidal-axial", "fourier", "rotary", "rotary-linear", "rotary-learned")
ANGLES += ("rotary-axial", "rotary-mixed", "rotary-multimodal")


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_real_coordinates_are_float64_and_know_no_end():
    assert REAL.index.dtype == torch.float64
    assert REAL.real
    assert REAL.max_length is None
    assert REAL[1:].max_length is None
    assert REAL[1:].index.tolist() == [[[-1.25, 3.0]]]
    assert not REAL.is_consecutive()
    assert not ww.Positions.from_coordinates(torch.tensor([0.0, 1.0])).is_consecutive()
    assert repr(REAL).startswith("<Positions: axes=1, batch=1, tokens=3")
    assert not ww.positions(3).real
    assert copy.deepcopy(REAL).real


@pytest.mark.parametrize("row", ww.catalogue.values(), ids=lambda row: row.name)
def test_schemes_of_angles_take_real_coordinates_and_others_refuse_them(row):
    where = ww.scheme(row.name, 48, 2, 32)
    x, q = draw(1, 3, 48), draw(1, 2, 3, 24)

    def use():
        here = where.at(REAL)
        mapped = here.query_key(q, q, increments=here.increments(x))
        return here.attention(*mapped, q, gates=here.gates(here.input(x)))

    reads_none = row.door is None or row.name in ("cope", "fox", "carope", "selective-rope")  # these count tokens
    in_groups = region_map_of(where.query_key) is not None
    if row.name in ANGLES or reads_none or (row.name.startswith("rotary") and not (row.follows_length or in_groups)):
        assert use().isfinite().all()
    else:
        with pytest.raises(PositionError, match=r"needs whole positions, but these are real numbers|have no length"):
            use()


@pytest.mark.parametrize("name", [name for name in ANGLES if "fourier" not in name])
def test_real_coordinates_that_are_whole_are_whole_ones(name):
    where = ww.scheme(name, 48, 2, 32)
    given = torch.tensor([3, 0, 1_000_000])
    x, q, results = draw(1, 3, 48), draw(1, 2, 3, 24), []
    for index in (given, given.double()):
        here = where.at(ww.Positions.from_coordinates(index))
        results.append([here.input(x), *here.query_key(q, q)])
    torch.testing.assert_close(*results, rtol=0, atol=1e-6)


def test_scores_depend_on_the_real_distance_only():
    rope, q = ww.Rotary(8), draw(1, 1, 3, 8).double()
    here, there = (rope(q, q, ww.Positions.from_coordinates(REAL.index[0] + shift)) for shift in (0.0, 0.3))
    torch.testing.assert_close(here[0] @ here[1].mT, there[0] @ there[1].mT, rtol=0, atol=1e-6)


def test_a_gradient_reaches_the_coordinates():
    """As for positions that a model computes; equal to that of differences."""
    q, k = draw(1, 1, 3, 8).double(), draw(1, 1, 3, 8, seed=1).double()
    learned = ww.LearnedRotary(8, dtype=torch.float64)  # its tables are float64, as differences need them

    def scores(index):
        mapped = learned(q, k, ww.Positions.from_coordinates(index))
        return mapped[0] @ mapped[1].mT

    assert torch.autograd.gradcheck(scores, torch.tensor([0.5, -1.25, 3.0], dtype=torch.float64, requires_grad=True))
    index = torch.tensor([0.5, -1.25, 3.0], requires_grad=True)
    ww.Rotary(8)(q.float(), k.float(), ww.Positions.from_coordinates(index))[0].sum().backward()
    assert index.grad.abs().min() > 0


def test_centers_are_symmetric_at_every_resolution():
    for height, width in ((1, 1), (4, 6), (7, 3)):
        index = ww.Positions.centered_grid(height, width, extent=1.0).index[:, 0]
        assert index.shape == (2, height * width)
        torch.testing.assert_close(index, -index.flip(-1))
        assert index.abs().max() < 1


def test_a_batch_has_samples_of_its_own():
    p = ww.Positions.centered_grid(4, 4, shift=0.5, batch=3, generator=torch.Generator().manual_seed(0))
    assert p.batch == 3
    assert (p.index[:, 0] - p.index[:, 1]).abs().min() > 0
    same = ww.Positions.centered_grid(4, 4, batch=3)
    assert torch.equal(same.index[:, 0], same.index[:, 2])


def test_images_without_text_between_them():
    """Two images in one run of tokens, as the models' own function does not read them."""
    p = ww.Positions.multimodal(torch.tensor([1, 1, 1, 0]), torch.tensor([[1, 2, 4], [1, 2, 2]]))
    assert p.index[:, 0].T.tolist() == [[0, 0, 0], [0, 0, 1], [2, 2, 2], [3, 3, 3]]


def test_text_alone_is_counted_on_all_axes():
    p = ww.Positions.multimodal(torch.zeros(2, 4, dtype=torch.long))
    assert torch.equal(p.index, torch.arange(4).expand(3, 2, -1))
    assert p.next_text(2).index[0].tolist() == [[4, 5], [4, 5]]


def test_decoding_after_an_image_equals_prefill():
    where = ww.Where(ww.MultimodalRotary(12, (2, 2, 2)))
    q = draw(1, 2, 9, 12)
    p = ww.Positions.multimodal(torch.tensor([0, 1, 1, 1, 1, 0]), torch.tensor([[1, 4, 4]]))
    for _ in range(3):
        p = p.append(p.next_text())
    here = where.at(p)
    mapped = here.query_key(q, q)
    step = where.at(p[-1:], p)
    one = step.query_key(q[:, :, -1:], q[:, :, -1:])
    assert torch.equal(one[1], mapped[1][:, :, -1:])
    torch.testing.assert_close(
        step.attention(one[0], mapped[1], q), here.attention(*mapped, q)[:, :, -1:], rtol=0, atol=1e-6
    )
