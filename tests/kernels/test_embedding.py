"""The input layer in one pass behaves as its modules do: hooks, gradients, errors, transforms, compilers, export."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

import whatwhere as ww
from whatwhere.kernels import backend
from whatwhere.kernels import embedding as kernel
from whatwhere.kernels.embedding import Rows, embed
from whatwhere.reference import input as reference_input
from whatwhere.reference import what as reference_tokens

from .inputs import BATCH, THREE_DTYPES, TOKENS, VOCAB_SIZE, ids_below, sampled

V, B, T = VOCAB_SIZE, BATCH, TOKENS

needs_library = pytest.mark.skipif(not backend.COMPILED, reason="the kernels are not compiled here")
pytestmark = needs_library


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _at_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the kernel for few numbers too."""
    monkeypatch.setattr(kernel, "_WORTH", 0)
    torch.manual_seed(0)


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Record each run of the kernel, and whether it added positions."""
    noted: list[bool] = []
    compute = kernel._run_kernel

    def noting(called: Any, weight: Tensor, ids: Tensor, scale: float | None, rows: Rows | None) -> Tensor | None:
        noted.append(rows is not None)
        return compute(called, weight, ids, scale, rows)

    monkeypatch.setattr(kernel, "_run_kernel", noting)
    return noted


def test_a_table_whose_features_are_apart_is_left_to_pytorch():
    weight, ids = sampled(77, V).mT, torch.randint(0, V, (B, T))
    assert embed(weight, ids, 3.0) is None
    assert torch.equal(ww.TokenEmbedding.from_weight(weight)(ids), weight[ids])


@pytest.mark.parametrize("shape", [(), (1,), (4,), (2, 3, 2), (0,), (2, 0), (0, 3)])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.uint8])
def test_ids_of_any_shape_and_type(shape, dtype):
    weight, ids = sampled(V, 8), torch.randint(0, V, shape)
    assert torch.equal(embed(weight, ids.to(dtype), 2.0), weight[ids] * 2.0)


@pytest.mark.parametrize("wrong", [-1, V, 2**40, -(2**62)])
@pytest.mark.usefixtures("threads")
def test_nothing_is_read_outside_of_a_table(wrong):
    weight, ids = torch.zeros(V, 512), torch.zeros(3, 100, dtype=torch.int64)
    ids[2, 98] = wrong
    rows = Rows(torch.zeros(V, 512), ids)
    assert embed(weight, ids) is None
    assert embed(weight, ids * 0, rows=rows) is None
    assert embed(weight, ids * 0, rows=Rows(rows.table, ids * 0 + V - 1, 1)) is None
    assert embed(weight.requires_grad_(), ids) is None


@pytest.mark.parametrize("scheme", [ww.Sinusoidal(8), ww.Learned(8, 16, offset=2), ww.Fourier(8, 16)])
def test_tokens_and_positions_are_one_pass(scheme, passes):
    """Else two passes would have the right numbers, too."""
    ww.InputLayer(V, 8, input=scheme)(ids_below(V, B, T))
    assert passes == [True]


def backward(layer: ww.InputLayer, x: Tensor) -> list[Tensor]:
    g = torch.randn(x.shape, generator=torch.Generator().manual_seed(1)).to(x.dtype)
    return list(torch.autograd.grad(x, list(layer.parameters()), g))


def test_the_layer_and_its_gradients_equal_the_reference():
    layer = ww.InputLayer(V, 8, input=ww.Learned(8, 16, offset=2), scale="sqrt_dim", padding_idx=4)
    ids, positions, g = torch.randint(0, V, (B, T)), torch.arange(3, 3 + T), torch.randn(B, T, 8)
    x = layer(ids, ww.positions(T, start=3))
    weight, rows = (w.detach().double().numpy() for w in layer.parameters())
    tokens, index = ids.numpy(), np.broadcast_to(positions.numpy(), (B, T))
    right = reference_tokens.lookup(weight, tokens, 8**0.5) + reference_input.learned(rows, index, 2)
    np.testing.assert_allclose(x.detach().numpy(), right, rtol=0, atol=1e-7)
    to_weight, to_rows = torch.autograd.grad(x, list(layer.parameters()), g)
    wide = g.double().numpy()
    expected = reference_tokens.lookup_gradient(wide, tokens, V, 8**0.5, padding_idx=4)
    np.testing.assert_allclose(to_weight.numpy(), expected, rtol=0, atol=2e-6)
    np.testing.assert_allclose(to_rows.numpy(), reference_input.learned_gradient(wide, index, 16, 2), atol=2e-6)


@pytest.mark.parametrize("fixed", ["tokens", "positions"])
def test_a_table_that_requires_no_gradient_gets_none(fixed):
    layer = ww.InputLayer(V, 8, input=ww.Learned(8, 16))
    weight, other = layer.tokens.weight, layer.where.input.weight
    weight, other = (weight, other) if fixed == "tokens" else (other, weight)
    weight.requires_grad_(False)
    layer(torch.randint(0, V, (B, T))).sum().backward()
    assert weight.grad is None
    assert bool((other.grad.sum() == B * T * 8).all())


@pytest.mark.parametrize("dtype", THREE_DTYPES)
def test_many_gradients_of_few_rows(dtype):
    """Sums of thousands of gradients equal PyTorch's to the bit, and the padding row gets none."""
    table, ids = ww.TokenEmbedding(V, 40, padding_idx=2, dtype=dtype), torch.randint(0, 5, (16, 256))
    g = torch.randn(16, 256, 40).to(dtype)
    (result,) = torch.autograd.grad(table(ids), table.weight, g)
    with ww.pytorch_only():
        (right,) = torch.autograd.grad(table(ids), table.weight, g)
    assert torch.equal(result, right)
    exact = reference_tokens.lookup_gradient(g.double().numpy(), ids.numpy(), V, padding_idx=2)
    tolerance = 2 * torch.finfo(dtype).eps * np.abs(exact).max() + 1e-4
    np.testing.assert_allclose(result.double().numpy(), exact, rtol=0, atol=tolerance)


def test_only_ids_and_positions_are_saved_for_the_gradient():
    layer = ww.InputLayer(V, 64, input=ww.Learned(64, 16), scale=2.0)
    kept: list[tuple[torch.dtype, int]] = []

    def keep(x: Tensor) -> Tensor:
        kept.append((x.dtype, x.numel()))
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        layer(torch.randint(0, V, (B, T)))
    assert kept == [(torch.int64, B * T), (torch.int64, T)]


HOOKS = ["register_forward_pre_hook", "register_forward_hook", "register_full_backward_hook"]


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")  # a table's inputs are ids
@pytest.mark.parametrize("register", HOOKS)
@pytest.mark.parametrize("where", ["tokens", "scheme"])
def test_hooks_are_called(where, register):
    layer, ids = ww.InputLayer(V, 8, input=ww.Learned(8, 16)), torch.randint(0, V, (B, T))
    right, called = layer(ids).detach(), []
    module = layer.tokens if where == "tokens" else layer.where.input
    getattr(module, register)(lambda *_: called.append(where))
    x = layer(ids)
    x.sum().backward()
    assert called == [where]
    assert torch.equal(x, right)


def test_rows_that_a_hook_received_are_not_overwritten():
    layer, ids, seen = ww.InputLayer(V, 8, input=ww.Learned(8, 16), scale=2.0), torch.randint(0, V, (B, T)), []
    layer.tokens.register_forward_hook(lambda module, given, rows: seen.append(rows))
    for pytorch_only in (False, True):
        with torch.no_grad(), ww.pytorch_only() if pytorch_only else torch.no_grad():
            layer(ids)
        assert torch.equal(seen.pop(), 2 * layer.tokens.weight[ids])


class Doubled(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return 2 * weight


class Shifted(ww.TokenEmbedding):
    def forward(self, ids: Tensor) -> Tensor:
        return super().forward(ids) + 1


def test_a_changed_table_is_called_and_not_bypassed(monkeypatch):
    scheme, ids = ww.Learned(8, 16), torch.randint(0, V, (B, T))
    layer = ww.InputLayer(V, 8, input=scheme)
    rows, p = layer.tokens.weight[ids].detach(), scheme.weight[:T].detach()
    patched = layer.tokens.forward
    layer.tokens.forward = lambda ids: patched(ids) + 1
    assert torch.equal(layer(ids), rows + 1 + p)
    del layer.tokens.forward
    parametrize.register_parametrization(layer.tokens, "weight", Doubled())
    assert torch.equal(layer(ids), 2 * rows + p)
    layer.tokens = Shifted.from_weight(layer.tokens.weight / 2)
    assert torch.equal(layer(ids), rows + 1 + p)


def test_an_optimizer_that_keeps_the_table_looks_rows_up():
    class Keeper:
        def lookup(self, weight: Tensor, ids: Tensor, padding_idx: int | None) -> Tensor:
            return 10 * weight[ids]

        def before_readout(self) -> None: ...

    layer, ids = ww.InputLayer(V, 8, input=ww.Learned(8, 16), scale=2.0), torch.randint(0, V, (B, T))
    layer.tokens.keeper = Keeper()
    assert torch.equal(layer(ids), 10 * layer.tokens.weight[ids] * 2 + layer.where.input.weight[:T])


@pytest.mark.usefixtures("our_own_checks")
@pytest.mark.parametrize("positions", [None, torch.tensor([[1, 0, 2, 2, 3]] * B)])
def test_errors_are_those_of_pytorch_only(positions):
    layer = ww.InputLayer(V, 8, input=ww.Learned(8, 4))
    ids = torch.randint(0, V, (B, T))
    wrong = ids.clone()
    wrong[1, 2] = V
    for given, p in (
        (wrong, positions), (ids, None), (ids, positions), (ids, ww.positions(T - 1)), (ids.float(), None),
    ):  # fmt: skip
        errors = []
        for pytorch_only in (False, True):
            try:
                with torch.no_grad(), ww.pytorch_only() if pytorch_only else torch.no_grad():
                    layer(given, p)
            except ww.WhatWhereError as error:
                errors.append((type(error), str(error)))
        assert len(errors) in (0, 2)
        assert len(set(errors)) < 2
        assert errors or (given is ids and p is positions and p is not None)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.usefixtures("our_own_checks")
def test_a_traced_table_looks_up_other_ids():
    table, ids = ww.TokenEmbedding(V, 8), torch.randint(0, V, (2, B, T))
    with torch.no_grad():
        traced = torch.jit.trace(table, (ids[0],), check_trace=False)
        assert torch.equal(traced(ids[1]), table(ids[1]))


def test_gradients_of_each_sample_by_vmap():
    layer, ids = ww.InputLayer(V, 8, input=ww.Learned(8, 16), scale=2.0), torch.randint(0, V, (B, T))
    parameters = {name: value.detach() for name, value in layer.named_parameters()}

    def loss(parameters: dict[str, Tensor], ids: Tensor) -> Tensor:
        return torch.func.functional_call(layer, parameters, (ids[None],)).square().sum()

    each = torch.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, ids)
    layer(ids).square().sum().backward()
    for name, value in layer.named_parameters():
        torch.testing.assert_close(each[name].sum(0), value.grad)


@pytest.mark.compile
def test_the_operator_passes_opcheck():
    weight, ids = torch.randn(V, 8, requires_grad=True), torch.randint(0, V, (B, T))
    p, index = torch.randn(9, 8, requires_grad=True), torch.randint(0, 7, (1, T))
    for given in (
        (weight, ids, 2.0, 3, p, index, 2),
        (weight, ids, None, None, torch.randn(B, T, 8, requires_grad=True), None, 0),
        (weight.detach().bfloat16(), ids.int().mT, 2.0, None, None, None, 0),
        (weight.detach().double(), ids, 2.0, None, None, None, 0),
    ):
        torch.library.opcheck(kernel._embed, given)


@pytest.mark.compile
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
@pytest.mark.parametrize("scheme", [ww.Learned(8, 16), ww.Sinusoidal(8)], ids=["learned", "sinusoidal"])
def test_a_compiled_layer_runs_the_kernel(scheme, backend, passes):
    layer, ids = ww.InputLayer(V, 8, input=scheme, scale=2.0), torch.randint(0, V, (B, T))
    compiled = torch.compile(layer, fullgraph=True, backend=backend)
    x, y = compiled(ids), layer(ids)
    assert passes == [True, True]
    assert torch.equal(x, y)
    for a, b in zip(backward(layer, x), backward(layer, y), strict=True):
        torch.testing.assert_close(a, b)
    with pytest.raises(IndexError, match=r"an id is outside of 0\.\.22, or a position"):
        compiled(ids + V)
    passes.clear()
    with ww.pytorch_only():
        torch.testing.assert_close(compiled(ids), y)
    assert passes == []


@pytest.mark.compile
def test_an_exported_layer_runs_without_whatwhere():
    layer, ids = ww.InputLayer(V, 8, input=ww.Sinusoidal(8)), torch.randint(0, V, (B, T))
    program = torch.export.export(layer, (ids, ww.positions(T)))
    assert not [node for node in program.graph.nodes if "whatwhere" in str(node.target)]
    assert torch.equal(program.module()(ids, ww.positions(T)), layer(ids))
