"""The rotation on a GPU equals PyTorch's operations to the bit, queries and keys in one launch."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import whatwhere as ww
from whatwhere.kernels import backend
from whatwhere.kernels.rotary import rotate_both, rotate_both_, rotate_in_pytorch

from ..kernels.inputs import LAYOUTS, NOT_SHARED, rotary_tables, sampled

rotary, cos_sin = (
    pytest.importorskip(f"whatwhere.kernels.cuda.{name}", reason="needs Triton, which is not installed here")
    for name in ("rotary", "cos_sin")
)

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
SHAPES = [(2, 5, 7, 16, 8), (1, 3, 4, 20, 6), (2, 1, 1, 2, 1), (1, 1, 3, 40, 4), (1, 2, 3, 6, 0)]
"""batch, heads, tokens, features, pairs: sizes that are not powers of two, features that stay, and no rotation."""


def rotate(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool, back: bool = False) -> Tensor:
    y = torch.empty_like(x)
    rotary.rotate((x,), (y,), cos, sin, interleaved, back)
    return y


@pytest.fixture
def launches(target: torch.device, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the kernels that run, in order; the CPU plays the role of a GPU where there is none."""
    seen: list[str] = []
    for module in (rotary, cos_sin):
        run: Callable[..., None] = module.launch

        def note(kernel, grid, *given, run=run, **constants):
            seen.extend([] if 0 in grid else [kernel.fn.__name__])
            run(kernel, grid, *given, **constants)

        monkeypatch.setattr(module, "launch", note)
    if target.type == "cpu":
        monkeypatch.setattr(Tensor, "is_cuda", property(lambda x: True))
        monkeypatch.setattr(backend, "_runs_on", lambda device: True)
    return seen


ROTATIONS = [
    *((shape, (1, 1), "contiguous") for shape in SHAPES),
    *(((3, 4, 5, 12, 4), rows, "contiguous") for rows in ((3, 1), (1, 4), (3, 4))),
    *(((2, 4, 5, 12, 4), (1, 1), layout) for layout in LAYOUTS),
]
"""Shapes, sequences and heads of the tables, and layouts in memory."""


@pytest.mark.every_nth(7)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(("shape", "rows", "layout"), ROTATIONS, ids=str)
def test_a_rotation_equals_that_of_pytorch(shape, rows, layout, interleaved, dtype, target, equal):
    """Also back, and with tables of different strides."""
    batch, heads, tokens, features, pairs = shape
    x = LAYOUTS[layout](sampled(batch, heads, tokens, features, device=target, dtype=dtype))
    cos, sin = rotary_tables(*rows, tokens, pairs, device=target)
    for lines in (sin, sin.mT.contiguous().mT):
        equal(rotate(x, cos, lines, interleaved), rotate_in_pytorch(x, cos, sin, interleaved))
    equal(rotate(x, cos, sin, interleaved, back=True), rotate_in_pytorch(x, cos, -sin, interleaved))


@pytest.mark.parametrize("interleaved", [False, True])
def test_in_place(interleaved, target, equal):
    """Nothing beside the rows is touched, and features without an angle stay."""
    held = sampled(2, 5, 4, 30, device=target)
    before, x = held.clone(), held[..., 8:20].transpose(1, 2)
    cos, sin = rotary_tables(1, 1, 5, 4, device=target)
    wanted = rotate_in_pytorch(x, cos, sin, interleaved)
    rotary.rotate((x,), (x,), cos, sin, interleaved)
    equal(x, wanted)
    equal(held[..., :8], before[..., :8])
    equal(held[..., 16:], before[..., 16:])


def test_blocks_of_several_tokens_heads_and_features(target, equal, monkeypatch):
    """As many as a program takes, and more: every axis of the grid is used."""
    monkeypatch.setattr(rotary, "_PAIRS_OF_A_PROGRAM", 16)
    monkeypatch.setattr(rotary, "_MAX_BLOCK", 4)
    for interleaved in (False, True):
        x, (cos, sin) = sampled(2, 3, 5, 40, device=target), rotary_tables(2, 1, 5, 9, device=target)
        equal(rotate(x, cos, sin, interleaved), rotate_in_pytorch(x, cos, sin, interleaved))


BOTH = [
    ((2, 4, 2, 5), (12, 6), (1, 1)), ((2, 8, 1, 3), (20, 6), (2, 1)), ((1, 3, 3, 4), (16, 5), (1, 3)),
    ((1, 40, 8, 2), (256, 128), (1, 1)), ((1, 1, 7, 1), (6, 0), (1, 1)), ((0, 2, 1, 3), (8, 4), (1, 1)),
    ((2, 3, 0, 3), (8, 4), (1, 1)), ((2, 0, 3, 3), (8, 4), (1, 1)),
]  # fmt: skip
"""batch, heads, key heads, tokens; features and pairs; rows and heads of the tables."""


@pytest.mark.every_nth(7)
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(("sizes", "features", "rows"), BOTH, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_queries_and_keys_are_one_launch(dtype, sizes, features, rows, interleaved, target, equal, launches):
    """Forward, backward, in place: each is one, and equals PyTorch's own operations on each of both."""
    batch, heads, key_heads, tokens = sizes
    q, k = (
        sampled(batch, n, tokens, features[0], device=target, dtype=dtype, seed=n).requires_grad_()
        for n in (heads, key_heads)
    )
    cos, sin = rotary_tables(*rows, tokens, features[1], device=target)
    with torch.no_grad():
        wanted = [rotate_in_pytorch(x, cos, sin, interleaved) for x in (q, k)]
        slopes = [rotate_in_pytorch(x, cos, -sin, interleaved) for x in wanted]
    once = ["_rotate"] * (q.numel() + k.numel() > 0)
    rotated = rotate_both(q, k, cos, sin, interleaved)
    assert launches == once
    given = torch.autograd.grad(rotated, (q, k), wanted)
    assert launches == 2 * once
    places = [x.detach().clone() for x in (q, k)]
    assert all(x is y for x, y in zip(rotate_both_(*places, cos, sin, interleaved), places, strict=True))
    assert launches[2 * len(once) :] == (once if features[1] else []), "in place, what is not rotated stays"
    for results, right in ((rotated, wanted), (given, slopes), (places, wanted)):
        for one, other in zip(results, right, strict=True):
            equal(one.detach(), other)


@pytest.mark.every_nth(3)
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_queries_and_keys_of_any_strides(layout, interleaved, target, equal, launches):
    """Each of its own; where features are apart, both are copied first."""
    for other in ("contiguous", "heads behind tokens", layout):
        q, k = LAYOUTS[layout](sampled(2, 4, 5, 12, device=target)), LAYOUTS[other](sampled(2, 2, 5, 12, device=target))
        cos, sin = rotary_tables(1, 1, 5, 4, device=target)
        wanted = [rotate_in_pytorch(x, cos, sin, interleaved) for x in (q, k)]
        for results in (
            rotate_both(q, k, cos, sin, interleaved),
            rotate_both_(q, k, cos, sin, interleaved) if layout in NOT_SHARED else wanted,
        ):
            for one, right in zip(results, wanted, strict=True):
                equal(one, right)
    assert set(launches) == {"_rotate"}
    assert len(launches) == 3 * (1 + (layout in NOT_SHARED))


@pytest.mark.parametrize("what", ["tokens", "dtype", "gradient of one", "gradient to one"])
def test_queries_and_keys_that_differ_are_two_launches(what, target, equal, launches):
    """In their number of tokens, as with a KV cache, and so on; no number is another for it."""
    q, k = sampled(2, 4, 5, 12, device=target), sampled(2, 2, 5, 12, device=target)
    rope, p = ww.Rotary(12, rotary_dim=8), ww.positions(5).to(target)
    if what == "dtype":
        k = k.bfloat16()
    at_keys = p if what != "tokens" else ww.positions(3).to(target)
    k = k[:, :, : at_keys.tokens]
    if "gradient" in what:
        q.requires_grad_()
        k.requires_grad_("to" in what)
    (cos, sin), (key_cos, key_sin) = rope.bind(p), rope.bind(at_keys)
    launches.clear()
    rotated = (
        rotate_both(q, k, cos, sin, False) if what != "tokens" else rope.map_both(q, k, (cos, sin), (key_cos, key_sin))
    )
    with torch.no_grad():
        for x, y, tables in ((q, rotated[0], (cos, sin)), (k, rotated[1], (key_cos, key_sin))):
            equal(y.detach(), rotate_in_pytorch(x, *tables, False))
    assert launches.count("_rotate") == (1 if what == "gradient to one" else 2)
    if "gradient" in what:
        assert rotated[1].requires_grad == k.requires_grad
        launches.clear()
        (slope,) = torch.autograd.grad(rotated[0].sum(), q)
        equal(slope, rotate_in_pytorch(torch.ones_like(q), cos, -sin, False))
        assert launches == ["_rotate"], "no zeros are made and rotated for keys"


def test_binding_is_one_launch_for_all_layers(target, launches):
    """And a layer's rotation is one, forward and backward; in place too."""
    p = ww.positions(6, start=3).to(target)
    q, k = (sampled(2, n, 6, 8, device=target).requires_grad_() for n in (4, 2))
    rope = ww.Rotary(8)
    layers = ww.bind([ww.Where(rope) for _ in range(24)], p)
    assert launches == ["_cos_sin"]
    launches.clear()
    rotated = [here.query_key(q, k) for here in layers]
    assert launches == ["_rotate"] * 24
    sum(y.sum() + z.sum() for y, z in rotated).backward()
    assert launches == ["_rotate"] * 48
    with torch.no_grad():
        layers[0].query_key(q.clone(), k.clone(), in_place=True)
    assert launches == ["_rotate"] * 49


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
    y = rotate(x, cos, sin, interleaved)[:, :, -9:]
    assert torch.equal(y, rotate_in_pytorch(x[:, :, -9:], cos[:, :, -9:], sin[:, :, -9:], interleaved))
