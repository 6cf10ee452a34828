"""The token table: how it is drawn, what it looks up, and where its gradient goes."""

import inspect
from copy import deepcopy
from functools import partial
from itertools import product
from math import sqrt
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional as F

import whatwhere as ww
from whatwhere.what.embedding import INITS

V, D = 600, 200
# Standard deviation and largest value of each initialization, by its formula; a normal has no largest value.
SPREADS = {
    "normal": (0.02, None),
    "glorot_normal": (sqrt(2 / (V + D)), None),
    "torch": (1.0, None),
    0.15: (0.15, None),
    "glorot_uniform": (sqrt(6 / (V + D)) / sqrt(3), sqrt(6 / (V + D))),
    "fan_in_uniform": (sqrt(1 / D) / sqrt(3), sqrt(1 / D)),
}


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("init", [*INITS, 0.15])
def test_each_init_has_the_spread_of_its_formula(init):
    std, largest = SPREADS[init]
    weight = ww.TokenEmbedding(V, D, init=init).weight.detach()
    # 120,000 values: the sample's deviation is within 0.2 % and its mean within 0.003 deviations (one sigma).
    assert abs(float(weight.std()) / std - 1) < 0.01
    assert abs(float(weight.mean())) < 0.015 * std
    if largest is None:
        assert float(weight.abs().max()) > 3.5 * std
    else:
        assert 0.999 * largest < float(weight.abs().max()) <= largest


def test_reset_initializes_anew_and_keeps_the_padding_row_zero():
    table = ww.TokenEmbedding(10, 4, padding_idx=3)
    before = table.weight.detach().clone()
    table.reset_parameters()
    changed = (table.weight != before).any(-1)
    assert changed.tolist() == [n != 3 for n in range(10)]
    assert bool((table.weight[3] == 0).all())


@pytest.mark.parametrize(("scale", "factor"), [(None, 1.0), ("sqrt_dim", 4.0), (2.5, 2.5)])
def test_scale_multiplies_rows_and_not_the_logits(scale, factor):
    table = ww.TokenEmbedding(5, 16, scale=scale)
    assert torch.allclose(table(torch.tensor([1, 4])), factor * table.weight[[1, 4]])
    hidden = torch.randn(2, 16)
    assert torch.allclose(table.readout(hidden), hidden @ table.weight.T, atol=1e-6)


@pytest.mark.parametrize(("dtype", "factor"), [(torch.float32, 55.42562484741211), (torch.bfloat16, 55.5)])
def test_a_rounded_scale_follows_the_type_of_the_table(dtype, factor):
    table = ww.TokenEmbedding(5, 3072, scale="sqrt_dim_rounded").to(dtype)
    ids = torch.arange(5)
    assert torch.equal(table(ids), table.weight * torch.tensor(factor, dtype=dtype))
    assert table.embed_scale == factor
    assert "scale=55.4256 rounded" in repr(table)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_padding_row_is_zero_and_stays_out_of_every_gradient(dtype):
    table = ww.TokenEmbedding(6, 4, padding_idx=0, dtype=dtype)
    x = table(torch.tensor([[0, 0, 3]]))
    assert bool((x[0, :2] == 0).all())
    logits = table.readout(x + 1)
    assert bool((logits[..., 0] == 0).all())
    # Through the logits, the cross-entropy pushes every row; the padding row alone must not move.
    F.cross_entropy(logits.float().flatten(0, 1), torch.tensor([0, 1, 2])).backward()
    assert bool((table.weight.grad[0] == 0).all())
    assert bool((table.weight.grad[1:] != 0).any(-1).all())


def test_from_weight_shares_the_given_values():
    weight = torch.tensor([[0.1, 0.2], [0.4, 0.5], [0.7, 0.8]])
    table = ww.TokenEmbedding.from_weight(weight)
    assert torch.equal(table(torch.tensor([2, 0])), weight[[2, 0]])
    assert (table.num_embeddings, table.embedding_dim, table.weight.requires_grad) == (3, 2, True)
    weight[1, 0] = 9
    assert table.weight[1, 0].item() == 9
    frozen = ww.TokenEmbedding.from_weight(weight.bfloat16(), freeze=True)
    assert (frozen.weight.dtype, frozen.weight.requires_grad) == (torch.bfloat16, False)
    assert not frozen(torch.tensor([1])).requires_grad
    assert not ww.TokenEmbedding.from_weight(weight, padding_idx=1).weight[1].any()
    assert weight[1].tolist() == [9, 0.5], "the padding row is made zero in a copy"


# An nn.Embedding, to all that look for one.


def test_it_has_the_arguments_and_attributes_of_an_embedding() -> None:
    theirs, ours = (list(inspect.signature(kind.__init__).parameters) for kind in (nn.Embedding, ww.TokenEmbedding))
    assert ours == [*theirs, "init", "scale"]
    table = ww.TokenEmbedding(7, 3, 2)
    assert isinstance(table, nn.Embedding)
    names = ("num_embeddings", "embedding_dim", "padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse")
    assert [getattr(table, name) for name in names] == [getattr(nn.Embedding(7, 3, 2), name) for name in names]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("padding", [None, 2, -1, -7])
def test_it_computes_what_an_embedding_computes(padding: int | None, dtype: torch.dtype) -> None:
    tables = []
    for kind, how in ((nn.Embedding, {}), (ww.TokenEmbedding, {"init": "torch"})):
        torch.manual_seed(5)
        tables.append(kind(7, 3, padding_idx=padding, dtype=dtype, **how))
    assert torch.equal(*(table.weight for table in tables))
    ids, upstream = torch.tensor([[2, 0, 6], [6, 6, 1]]), torch.randn(2, 3, 3, dtype=dtype)
    assert torch.equal(*(table(ids) for table in tables))
    for table in tables:
        table(ids).backward(upstream)
    torch.testing.assert_close(*(table.weight.grad for table in tables))


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"max_norm": 1.0}, r"max_norm=1\.0, which would write(.|\n)*nn\.Embedding"),
        ({"scale_grad_by_freq": True}, r"scale_grad_by_freq=True, which(.|\n)*nn\.Embedding"),
        ({"sparse": True}, r"sparse=True, (.|\n)*RowAdamW"),
    ],
)
def test_options_that_are_not_kept_are_refused(option: dict[str, Any], words: str) -> None:
    with pytest.raises(ww.errors.SettingError, match=words):
        ww.TokenEmbedding(7, 3, **option)
    with pytest.raises(ww.errors.SettingError, match=words):
        ww.TokenEmbedding.from_pretrained(torch.ones(7, 3), **option)


def test_given_values_are_shared_and_from_pretrained_has_the_defaults_of_an_embedding() -> None:
    weight = torch.randn(4, 3)
    given = ww.TokenEmbedding(4, 3, padding_idx=1, _weight=weight, _freeze=True)
    for table in (given, ww.TokenEmbedding.from_pretrained(weight)):
        assert type(table) is ww.TokenEmbedding
        assert not table.weight.requires_grad
        assert table.weight.data_ptr() == weight.data_ptr()
    assert given.weight[1].any()
    with pytest.raises(ww.errors.ShapeError, match=r"\(4, 3\), but the table \(5, 3\)"):
        ww.TokenEmbedding(5, 3, _weight=weight)
    trained = ww.TokenEmbedding.from_pretrained(weight, freeze=False, padding_idx=2)
    assert trained.weight.requires_grad
    assert trained.padding_idx == 2
    assert trained.weight.data_ptr() == weight.data_ptr()
    assert torch.equal(trained(torch.tensor([2])), weight[[2]])  # kept, where from_weight makes it 0
    assert trained.readout(torch.ones(3))[2] == 0


@pytest.mark.usefixtures("our_own_checks")
def test_it_is_traced_and_named_as_an_embedding() -> None:
    class Model(nn.Module):
        def __init__(self, table: nn.Embedding) -> None:
            super().__init__()
            self.table = table

        def forward(self, ids: Tensor) -> Tensor:
            return 2 * self.table(input=ids)

    table, ids = ww.TokenEmbedding(7, 3, padding_idx=2, scale=2.0), torch.tensor([[2, 0, 6]])
    graph = torch.fx.symbolic_trace(Model(table))
    assert [(node.op, node.target) for node in graph.graph.nodes][1] == ("call_module", "table")
    assert torch.equal(graph(ids), 2 * table(ids))
    with pytest.raises(ww.errors.TokenError, match="id 7"):
        graph(ids + 1)
    alone = torch.fx.symbolic_trace(table)
    assert torch.equal(alone(ids), table(ids))
    alone(ids).sum().backward()
    assert alone.weight.grad.sum(1).tolist() == [6, 0, 0, 0, 0, 0, 6]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", [nn.Embedding, ww.TokenEmbedding, ww.Learned])
def test_derivatives_of_all_modes(kind: Any, dtype: torch.dtype) -> None:
    """Of f(w) = sum w[id]^3 along t: first 3 w^2 t for each time that a row is read, second 6 w t."""
    table, ids = kind(*((3, 4) if kind is ww.Learned else (4, 3)), dtype=dtype), torch.tensor([[0, 3], [3, 3]])
    w, t = torch.tensor([[1.0], [9], [9], [2]]).repeat(1, 3).to(dtype), torch.full((4, 3), 0.5, dtype=dtype)
    read = partial(torch.func.functional_call, table)

    def cubes(w: Tensor) -> Tensor:
        return read({"weight": w}, (ids,)).pow(3).sum()

    assert torch.equal(torch.func.jvp(lambda w: read({"weight": w}, (ids,)), (w,), (t,))[1], t[ids])
    assert torch.func.jvp(cubes, (w,), (t,))[1] == 3 * (1.5 + 3 * 6)
    assert torch.func.jvp(torch.func.grad(cubes), (w,), (t,))[1][:, 0].tolist() == [3, 0, 0, 18]
    assert torch.func.hessian(cubes)(w)[3, 0, :, 0].tolist() == [0, 0, 0, 36]
    several = torch.vmap(lambda t: torch.func.jvp(cubes, (w,), (t,))[1])(torch.stack([t, 2 * t]))
    assert several.tolist() == [58.5, 117]
    with forward_ad.dual_level():
        dual = read({"weight": forward_ad.make_dual(w, t)}, (ids,))
        assert torch.equal(forward_ad.unpack_dual(dual).tangent, t[ids])


@pytest.mark.compile
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # by PyTorch, where it traces
@pytest.mark.parametrize("kind", [ww.TokenEmbedding, ww.Learned])
def test_training_in_bfloat16_is_one_graph(kind: Any) -> None:
    table, ids = kind(8, 8, dtype=torch.bfloat16), torch.tensor([[0, 3, 3]])
    compiled = torch.compile(table, fullgraph=True, backend="aot_eager")
    compiled(ids).sum().backward()
    assert table.weight.grad[:, 0].tolist() == [1, 0, 0, 2, 0, 0, 0, 0]


@pytest.mark.parametrize("scale", [None, 2.0, "sqrt_dim"])
def test_an_adapter_of_low_rank_scales_as_the_table_does(scale: Any) -> None:
    """PEFT looks rows of A up and multiplies by the `embed_scale` of what it wraps; merged, both are one table."""
    table, ids = ww.TokenEmbedding(6, 5, scale=scale, dtype=torch.float64), torch.tensor([[4, 1]])
    a, b = torch.randn(2, 6, dtype=torch.float64), torch.randn(5, 2, dtype=torch.float64)
    names = ("padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse")
    rows = F.embedding(ids, a.T, **{name: getattr(table, name) for name in names}) @ b.T
    apart = table(ids) + rows * torch.tensor(table.embed_scale, dtype=torch.float64)
    table.weight.data += (b @ a).T
    torch.testing.assert_close(table(ids), apart)


class ScaledByAnAttribute(ww.TokenEmbedding):
    """As BART's table: it multiplies by itself what nn.Embedding returns."""

    def __init__(self) -> None:
        super().__init__(5, 4, 0)
        self.embed_scale = 3.0

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) * self.embed_scale


class ScaledByABuffer(ScaledByAnAttribute):
    """As Gemma 3's."""

    def __init__(self) -> None:
        ww.TokenEmbedding.__init__(self, 5, 4, 0)
        self.embed_scale = nn.Buffer(torch.tensor(3.0), persistent=False)  # type: ignore[assignment]


@pytest.mark.compile
@pytest.mark.parametrize("kind", [ScaledByAnAttribute, ScaledByABuffer])
def test_a_subclass_may_have_an_embed_scale_of_its_own(kind: Any) -> None:
    table, ids = kind(), torch.tensor([[4, 1]])
    assert table.embed_scale == 3.0
    assert list(table.state_dict()) == ["weight"]
    for call in (table, deepcopy(table), torch.compile(table, fullgraph=True, backend="eager")):
        torch.testing.assert_close(call(ids), 3 * table.weight[ids])


class Bytes(Tensor):
    """A weight of eight bits, as quantizers put one into a module that they find."""

    @staticmethod
    def __new__(cls, weight: Tensor) -> "Bytes":
        return Tensor._make_wrapper_subclass(cls, weight.shape, dtype=weight.dtype, device=weight.device)

    def __init__(self, weight: Tensor) -> None:
        self.step = weight.float().abs().amax(1, keepdim=True) / 127
        self.whole = (weight.float() / self.step).round().char()

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is F.embedding:
            ids, weight = args
            return (F.embedding(ids, weight.whole) * F.embedding(ids, weight.step)).to(weight.dtype)
        return super().__torch_function__(function, types, args, kwargs or {})

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return args[0]  # detach, alias


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("scale", [None, 3.0])
def test_a_quantized_weight_is_looked_up(scale: float | None, dtype: torch.dtype) -> None:
    table, ids = ww.TokenEmbedding(6, 8, scale=scale, dtype=dtype), torch.tensor([[4, 1]])
    wanted = table(ids).detach()
    result = [module for module in nn.Sequential(table).modules() if isinstance(module, nn.Embedding)]
    result[0].weight = nn.Parameter(Bytes(table.weight.detach()), requires_grad=False)
    torch.testing.assert_close(table(ids), wanted, rtol=0, atol=0.02 * float(wanted.abs().max()))
    layer = ww.InputLayer(6, 8, ww.Sinusoidal(8))
    layer.tokens = table
    assert torch.equal(layer(ids), (table(ids).float() + layer.where.input(ww.positions(2))).to(dtype))


@pytest.mark.slow
def test_tensor_parallelism_splits_the_table(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(split_table, (tmp_path,), nprocs=2)
    assert [(tmp_path / f"{rank}").read_text() for rank in range(2)] == ["as before"] * 2


def split_table(rank: int, folder: Path) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    mesh, ids = init_device_mesh("cpu", (2,)), torch.tensor([[1, 9, 9, 0]])
    ways = (RowwiseParallel(input_layouts=Replicate()), ColwiseParallel(output_layouts=Replicate()))
    cases = product(ways, (torch.float32, torch.bfloat16), ({}, {"scale": 2.0}, {"padding_idx": 1}))
    for way, dtype, settings in cases:
        torch.manual_seed(0)
        model = nn.Sequential(ww.TokenEmbedding(10, 6, dtype=dtype, **settings))
        wanted = model(ids)
        wanted.square().sum().backward()
        gradient = model[0].weight.grad
        model.zero_grad()
        split = parallelize_module(model, mesh, {"0": way})
        assert split[0].weight.to_local().numel() == 30
        result = split(ids)
        assert torch.equal(result, wanted)
        result.square().sum().backward()
        torch.testing.assert_close(split[0].weight.grad.full_tensor(), gradient)
        with pytest.raises(ww.errors.TokenError, match=r"id 10 at \(0, 1\)"):
            split(torch.tensor([[1, 10]]))
    (folder / f"{rank}").write_text("as before")
    torch.distributed.destroy_process_group()
