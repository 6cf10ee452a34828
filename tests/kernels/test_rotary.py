"""The rotation: the formula, gradients, in place, as an operator in a trace, and where the kernel cannot be used."""

import pytest
import torch
from torch import Tensor, nn
from torch._inductor.graph import GraphLowering
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.fx.experimental.proxy_tensor import make_fx
from torch.library import opcheck

import whatwhere as ww
from whatwhere.kernels import backend
from whatwhere.kernels.rotary import rotate, rotate_, rotate_in_pytorch, rotate_op, rotate_op_

from .inputs import LAYOUTS, NOT_SHARED, rotary_tables, sampled

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]

compiled = pytest.mark.skipif(not backend.COMPILED, reason="no kernels were compiled, or they are disabled")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_result_has_the_strides_of_its_input(layout):
    x, (cos, sin) = LAYOUTS[layout](sampled(2, 5, 6, 12)), rotary_tables(1, 1, 6, 4)
    before = x.clone()
    assert rotate(x, cos, sin, False).stride() == torch.empty_like(x).stride()
    assert torch.equal(x, before)


@pytest.mark.parametrize("layout", NOT_SHARED)
def test_in_place_returns_its_input_with_a_new_version(layout):
    x, (cos, sin) = LAYOUTS[layout](sampled(2, 5, 6, 12)), rotary_tables(1, 1, 6, 4)
    wanted, version = rotate_in_pytorch(x, cos, sin, True), x._version
    assert rotate_(x, cos, sin, True) is x
    assert torch.equal(x, wanted)
    assert x._version > version


def test_tables_that_do_not_fit_are_not_read_beyond_their_end(our_own_checks):
    x = sampled(2, 4, 5, 8)
    one_for_all = rotary_tables(1, 1, 1, 4)
    assert torch.equal(rotate(x, *one_for_all, False), rotate_in_pytorch(x, *one_for_all, False))
    for shape in [(1, 1, 4, 4), (3, 1, 5, 4), (1, 2, 5, 4), (1, 1, 5, 5)]:
        with pytest.raises(RuntimeError):
            rotate(x, *rotary_tables(*shape), False)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("rotation", [rotate, lambda x, *args: rotate_(x * 1, *args)], ids=["new", "in place"])
def test_first_and_second_derivatives(rotation, interleaved):
    x, (cos, sin) = sampled(2, 2, 3, 7, dtype=torch.float64).requires_grad_(), rotary_tables(1, 1, 3, 2)
    assert gradcheck(lambda x: rotation(x, cos, sin, interleaved), x)
    assert gradgradcheck(lambda x: rotation(x, cos, sin, interleaved), x)


@pytest.mark.parametrize("rotation", [rotate, lambda x, *args: rotate_(x * 1, *args)], ids=["new", "in place"])
def test_only_the_tables_are_saved_for_the_gradient(rotation):
    x, (cos, sin) = sampled(2, 4, 5, 8).requires_grad_(), rotary_tables(1, 1, 5, 4)
    kept = []

    def note(saved: Tensor) -> Tensor:
        kept.append(saved.numel())
        return saved

    with torch.autograd.graph.saved_tensors_hooks(note, lambda saved: saved):
        rotation(x, cos, sin, False)
    assert sum(kept) <= 2 * cos.numel()


def test_a_gradient_of_any_strides():
    """sum() passes one number for all elements, transposed layers another order."""
    x, (cos, sin) = sampled(2, 4, 5, 8).requires_grad_(), rotary_tables(1, 1, 5, 4)
    for g in (torch.ones(()).expand(2, 4, 5, 8), sampled(2, 5, 8, 4).permute(0, 3, 1, 2)):
        (result,) = torch.autograd.grad(rotate(x, cos, sin, False), x, g)
        assert torch.equal(result, rotate_in_pytorch(g, cos, -sin, False))


def test_learned_tables_get_a_gradient():
    x, tables_ = sampled(2, 4, 5, 8), [part.requires_grad_() for part in rotary_tables(1, 4, 5, 3)]
    result = torch.autograd.grad(rotate(x, *tables_, True).square().sum(), tables_)
    wanted = torch.autograd.grad(rotate_in_pytorch(x, *tables_, True).square().sum(), tables_)
    assert all(map(torch.equal, result, wanted))
    assert result[0].any()
    with torch.no_grad():
        assert torch.equal(rotate(x, *tables_, True), rotate_in_pytorch(x, *tables_, True))


def test_in_place_changes_nothing_beside_its_view():
    held = sampled(2, 5, 4, 30)
    before, x = held.clone(), held[..., 8:20].transpose(1, 2)
    rotate_(x, *rotary_tables(1, 1, 5, 4), interleaved=False)
    outside = torch.ones(30, dtype=torch.bool)
    outside[8:16] = False
    assert torch.equal(held[..., outside], before[..., outside])
    assert (held[..., ~outside] != before[..., ~outside]).any()


@pytest.mark.parametrize("pytorch_only", [False, True])
def test_in_place_passes_the_gradient_on(pytorch_only):
    """Through one projection of queries and keys, as models have it."""
    x, weight = sampled(2, 5, 16), sampled(16, 48, seed=2).requires_grad_()
    cos, sin = rotary_tables(1, 1, 5, 4)

    def run(in_place: bool) -> tuple[Tensor, Tensor]:
        q, k = (part.unflatten(-1, (3, 8)).transpose(1, 2) for part in ((x @ weight)[..., :24], (x @ weight)[..., 24:]))
        q, k = (rotate_(part, cos, sin, True) if in_place else rotate(part, cos, sin, True) for part in (q, k))
        scores = (q @ k.mT).square().sum()
        return scores, torch.autograd.grad(scores, weight)[0]

    wanted = run(in_place=False)
    with ww.pytorch_only() if pytorch_only else torch.enable_grad():
        result = run(in_place=True)
    torch.testing.assert_close(result, wanted, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("learning", [False, True])
def test_in_place_over_what_another_gradient_needs_is_an_error(learning):
    x, (cos, sin) = sampled(1, 2, 5, 8).requires_grad_(), rotary_tables(1, 1, 5, 4)
    y = x.exp()  # whose gradient is y itself
    with torch.set_grad_enabled(learning):
        rotate_(y, cos, sin, False)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        (x.exp() + y).sum().backward()


def test_in_place_refuses_what_it_cannot_overwrite(our_own_checks):
    (cos, sin), leaf = rotary_tables(1, 1, 5, 4), sampled(2, 5, 4, 8).requires_grad_()
    for x in (leaf.transpose(1, 2), leaf.detach().transpose(1, 2).requires_grad_()):
        with pytest.raises(ww.errors.SettingError, match=r"overwrite a leaf that requires a gradient.*\n.*no_grad"):
            rotate_(x, cos, sin, False)
        with torch.no_grad():
            rotate_(x, cos, sin, False)
    windows = sampled(1, 1, 40).unfold(2, 8, 4)[:, :, :5]
    for x in (sampled(2, 1, 5, 8).expand(-1, 4, -1, -1), windows):
        before = x.clone()
        with pytest.raises(ww.errors.SettingError, match="rotate numbers more than once"):
            rotate_(x, cos, sin, False)
        assert torch.equal(x, before)


def test_queries_and_keys_that_overlap_are_not_rotated_twice(our_own_checks):
    rope = ww.Rotary(8)
    tokens, heads, line = sampled(1, 2, 4, 8), sampled(1, 3, 6, 8).transpose(1, 2), sampled(60)
    overlapping = {
        "one tensor": (tokens, tokens),
        "the first head": (heads, heads[:, :1]),
        "k one token further": (tokens[:, :, :-1], tokens[:, :, 1:]),
        "a shared head": (heads[:, :3], heads[:, 2:]),
        "every other number": (line.as_strided((1, 1, 3, 8), (60, 60, 16, 2)), line[9:33].view(1, 1, 3, 8)),
    }
    for q, k in overlapping.values():
        before = q.clone(), k.clone()
        with pytest.raises(ww.errors.SettingError, match=r"rotate the same numbers twice.*\nPass k\.clone\(\)"):
            rope(q, k, ww.positions(q.shape[2]), in_place=True)
        assert all(map(torch.equal, (q, k), before))


def test_queries_and_keys_of_one_product_are_rotated_in_place():
    rope, p, fused = ww.Rotary(8), ww.positions(3), sampled(1, 3, 4, 2, 8)
    flat = fused.clone().view(1, 3, 64)
    apart = {
        "head by head": (fused[..., 0, :].transpose(1, 2), fused[..., 1, :].transpose(1, 2)),
        "side by side": tuple(
            flat[..., some].unflatten(-1, (4, 8)).transpose(1, 2) for some in (slice(32), slice(32, 64))
        ),
        "number by number": tuple(flat[..., first::2].unflatten(-1, (4, 8)).transpose(1, 2) for first in (0, 1)),
    }
    for q, k in apart.values():
        wanted = rope(q, k, p)
        result = rope(q, k, p, in_place=True)
        assert all(x is y for x, y in zip(result, (q, k), strict=True))
        assert all(map(torch.equal, result, wanted))


def test_no_scheme_in_place():
    q = sampled(1, 2, 3, 8)
    assert ww.Where().at(ww.positions(3)).query_key(q, q, in_place=True) == (q, q)


@pytest.mark.every_nth(3)
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("layout", ["contiguous", "heads behind tokens", "one row for all heads"])
def test_operators_pass_opcheck(layout, interleaved, our_own_checks):
    x, (cos, sin) = LAYOUTS[layout](sampled(2, 4, 5, 8)), rotary_tables(1, 1, 5, 3)
    opcheck(rotate_op, (x, cos, sin, interleaved, False))
    opcheck(rotate_op, (x.detach().requires_grad_(), cos, sin, interleaved, True))
    if layout in NOT_SHARED:
        opcheck(rotate_op_, (x.clone(), cos, sin, interleaved))


@pytest.mark.parametrize("dims", [(0, None, None), (1, 0, None), (None, 2, 0), (3, 1, 1)], ids=str)
def test_the_operator_over_a_mapped_axis(dims):
    def laid(x: Tensor, dim: int | None) -> Tensor:
        return x[0] if dim is None else x.movedim(0, dim)

    x, (cos, sin) = sampled(3, 2, 4, 5, 8), rotary_tables(3, 1, 1, 5, 3)
    given = [laid(part, dim) for part, dim in zip((x, cos, sin), dims, strict=True)]
    mapped = torch.vmap(lambda x, cos, sin: rotate_op(x, cos, sin, False, False), dims)(*given)
    for n in range(3):
        row = [part[0 if dim is None else n] for part, dim in zip((x, cos, sin), dims, strict=True)]
        assert torch.equal(mapped[n], rotate_in_pytorch(*row, False))


def test_where_memory_cannot_be_read_pytorch_rotates(our_own_checks):
    """Transforms, traces and tangents: no number may be lost silently."""
    x, g, (cos, sin) = sampled(2, 4, 5, 8), sampled(2, 4, 5, 8, seed=5), rotary_tables(1, 1, 5, 4)
    wanted, rotation = rotate_in_pytorch(x, cos, sin, True), lambda x: rotate(x, cos, sin, True)
    assert torch.equal(torch.vmap(rotation)(x[None])[0], wanted)
    assert torch.equal(torch.func.jvp(rotation, (x,), (g,))[1], rotate_in_pytorch(g, cos, sin, True))
    assert torch.equal(torch.func.vjp(rotation, x)[1](g)[0], rotate_in_pytorch(g, cos, -sin, True))
    with forward_ad.dual_level():
        y = rotation(forward_ad.make_dual(x, g))
        assert torch.equal(forward_ad.unpack_dual(y).tangent, rotate_in_pytorch(g, cos, sin, True))
    assert torch.equal(make_fx(rotation)(x)(2 * x), rotate_in_pytorch(2 * x, cos, sin, True))
    assert rotate(*(part.to("meta") for part in (x, cos, sin)), True).shape == x.shape


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("pairs", [3, 4])
def test_batched_gradients(pairs, interleaved):
    """Batched gradients run the backward pass under a vmap of their own kind, which knows few operations."""
    x, (cos, sin) = sampled(2, 2, 3, 8).requires_grad_(), rotary_tables(1, 1, 3, pairs)
    g = sampled(4, 2, 2, 3, 8, seed=5)
    (result,) = torch.autograd.grad(rotate(x, cos, sin, interleaved), x, g, is_grads_batched=True)
    assert all(
        torch.equal(one, rotate_in_pytorch(row, cos, -sin, interleaved)) for one, row in zip(result, g, strict=True)
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_without_a_compiled_kernel_interleaved_pairs_rotate_as_complex_numbers(layout, dtype, monkeypatch):
    """One pass in PyTorch's own operations; they round as they like, once more or less."""
    x, (cos, sin) = LAYOUTS[layout](sampled(2, 5, 6, 12, dtype=dtype)), rotary_tables(1, 1, 6, 4)
    wanted = rotate_in_pytorch(x, cos, sin, True)
    monkeypatch.setattr(backend, "COMPILED", False)
    result = rotate_in_pytorch(x, cos, sin, True)
    torch.testing.assert_close(result, wanted, rtol=0, atol=8 * torch.finfo(dtype).eps)
    assert torch.equal(result[..., 8:], x[..., 8:])


class Layer(nn.Module):
    """A projection whose queries and keys rotate."""

    def __init__(self, rope: ww.Rotary, in_place: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.project, self.rope, self.in_place = nn.Linear(16, 48), rope, in_place

    def forward(self, x: Tensor) -> Tensor:
        q, k = (part.unflatten(-1, (3, 8)).transpose(1, 2) for part in self.project(x).chunk(2, -1))
        if self.in_place:
            q, k = q.clone(), k.clone()
        q, k = self.rope(q, k, ww.positions(x.shape[1], start=7), in_place=self.in_place)
        return q @ k.mT


@pytest.mark.compile
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("interleaved", [False, True])
def test_a_compiled_layer_is_one_graph_with_the_same_numbers(interleaved, in_place):
    layer = Layer(ww.Rotary(8, interleaved=interleaved, rotary_dim=6), in_place)
    fast = torch.compile(layer, fullgraph=True, dynamic=True, backend="aot_eager")
    for tokens in (5, 9):
        x = sampled(2, tokens, 16)
        for mode in (torch.no_grad, torch.enable_grad):
            with mode():
                torch.testing.assert_close(fast(x), layer(x), rtol=1e-5, atol=1e-5)
        gradients = [torch.autograd.grad(run(x).square().sum(), layer.project.weight)[0] for run in (fast, layer)]
        torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-3)


@compiled
@pytest.mark.compile
def test_compiled_layers_contain_the_operator_and_exported_ones_do_not():
    layer, x = Layer(ww.Rotary(8), in_place=False), sampled(2, 5, 16)
    held = []

    def note(graph, inputs):
        held.extend(node.target for node in graph.graph.nodes)
        return graph

    torch.compile(layer, fullgraph=True, backend=note)(x)
    assert any("whatwhere" in str(target) for target in held)
    exported = torch.export.export(layer, (x,))
    assert not any("whatwhere" in str(node.target) for node in exported.graph.nodes)
    torch.testing.assert_close(exported.module()(x), layer(x))


@pytest.mark.compile
@pytest.mark.parametrize("interleaved", [False, True])
def test_queries_and_keys_compile_to_one_kernel(interleaved, monkeypatch):
    """As on a GPU, where a trace has PyTorch's own operations: read in the code of its compiler, for any length."""
    monkeypatch.setattr(backend, "COMPILED", False)
    codes: list[str] = []
    monkeypatch.setattr(GraphLowering, "save_output_code", codes.append)
    rope = ww.Rotary(8, interleaved=interleaved, rotary_dim=6)

    def run(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        return rope.map_both(q, k, (cos, sin), (cos, sin))

    fast = torch.compile(run, fullgraph=True, dynamic=True)
    # For a CPU, but not for a GPU, tensors that are put side by side would be written to memory first.
    with (
        torch._inductor.config.patch(fx_graph_cache=False, force_pointwise_cat=True),
        torch._functorch.config.patch(enable_autograd_cache=False),
    ):
        for tokens in (5, 9, 64):
            q, k = (sampled(2, heads, tokens, 8, seed=heads).requires_grad_() for heads in (6, 2))
            cos, sin = rotary_tables(1, 1, tokens, 3)
            rotated, wanted = fast(q, k, cos, sin), [rotate_in_pytorch(x, cos, sin, interleaved) for x in (q, k)]
            torch.testing.assert_close(list(rotated), wanted, rtol=1e-6, atol=1e-6)
            slopes = [torch.autograd.grad(each, (q, k), [y.detach() for y in wanted]) for each in (rotated, wanted)]
            torch.testing.assert_close(*slopes, rtol=1e-5, atol=1e-5)
    kernels = [code.count('extern "C"') for code in codes]
    assert kernels == [1, 1], "one kernel forward, one backward, none for another length"
