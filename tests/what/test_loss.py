"""The loss of an output projection: that of PyTorch and of the reference, without a tensor of all logits."""

from collections.abc import Callable
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import whatwhere as ww
from whatwhere import linear_cross_entropy, reference
from whatwhere.kernels import linear_cross_entropy as kernel
from whatwhere.what.file_table import FileTokenEmbedding

from ..gradients import require_gradients
from ..refusals import require_refused, short_refusals

N, D, V = 13, 6, 31


@pytest.fixture(params=["at once", "in parts"])
def room(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let all logits be in memory, or few tokens and rows at a time."""
    if request.param == "in parts":
        few = {"_ROOM": {"cpu": (4 * 7 * 5, 4 * 7 * 5)}, "_MOST": 5, "_FEWEST": 4}
        for name, value in few.items():
            monkeypatch.setattr(kernel, name, value)
    return str(request.param)


def given(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return vectors, a table and a bias, of which each is a leaf, and targets of which some are ignored."""
    made = (torch.randn(N, D), torch.randn(V, D), torch.randn(V))
    hidden, weight, bias = (each.to(dtype).requires_grad_() for each in made)
    targets = torch.randint(V, (N,))
    targets[[2, 7]], targets[3], targets[4] = -100, V - 1, 0
    return hidden, weight, bias, targets


def gradients(loss: Tensor, leaves: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return gradients of a loss, or of losses with weights of their own."""
    return torch.autograd.grad(loss, leaves, torch.linspace(-1, 2, loss.numel()).to(loss).view_as(loss))


SETTINGS: tuple[dict[str, float], ...] = (
    {},
    {"softcap": 1.5},
    {"z_loss": 0.1},
    {"label_smoothing": 0.3},
    {"softcap": 2.0, "z_loss": 0.01, "label_smoothing": 0.2},
)


@pytest.mark.usefixtures("room")
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_the_loss_is_that_of_the_reference(reduction: str, settings: dict[str, float]) -> None:
    hidden, weight, bias, targets = given()
    losses = linear_cross_entropy(hidden, weight, targets, bias, reduction=reduction, **settings)
    counted = (targets != -100).double()
    share = {"none": torch.linspace(-1, 2, N).double(), "sum": 2.0, "mean": 2.0 / counted.sum()}[reduction] * counted
    leaves = (hidden, weight, bias)

    def wanted(h: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
        named = {key.removeprefix("label_"): value for key, value in settings.items()}
        with_bias = np.concatenate([h, np.ones((N, 1))], 1), np.concatenate([w, b[:, None]], 1)
        return reference.cross_entropy(*with_bias, targets.clamp(min=0).numpy(), **named)

    exact = torch.tensor(wanted(*(each.detach().numpy() for each in leaves))) * counted
    exact = {"none": exact, "sum": exact.sum(), "mean": exact.sum() / counted.sum()}[reduction]
    torch.testing.assert_close(losses.detach(), exact, rtol=1e-12, atol=1e-12)
    upstream = torch.linspace(-1, 2, N).double() if reduction == "none" else torch.tensor(2.0, dtype=torch.float64)
    require_gradients(torch.autograd.grad(losses, leaves, upstream), wanted, leaves, share)


@pytest.mark.usefixtures("room")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("padding", [None, 0, 20])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("smoothing", [0.0, 0.25])
def test_a_table_has_the_loss_of_its_logits(
    reduction: str, padding: int | None, dtype: torch.dtype, smoothing: float
) -> None:
    hidden, _, _, targets = given(dtype)
    table = ww.TokenEmbedding(V, D, padding, init=1.0, dtype=dtype)
    targets[5] = 20  # also as the padding token, whose logit is zero
    plain = F.cross_entropy(table.readout(hidden), targets, reduction=reduction, label_smoothing=smoothing)
    ours = table.loss(hidden.view(1, N, D), targets[None], reduction=reduction, label_smoothing=smoothing)
    torch.testing.assert_close(ours.view_as(plain), plain)
    leaves = (hidden, table.weight)
    for own, theirs in zip(gradients(ours, leaves), gradients(plain, leaves), strict=True):
        torch.testing.assert_close(own, theirs)
    assert padding is None or not gradients(table.loss(hidden, targets), leaves)[1][padding].any()


@pytest.mark.parametrize("needed", [(True, False, False), (False, True, False), (False, False, True)])
@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_what_is_not_trained_gets_no_gradient(reduction: str, needed: tuple[bool, ...]) -> None:
    *tensors, targets = given()
    for each, need in zip(tensors, needed, strict=True):
        each.requires_grad_(need)
    hidden, weight, bias = tensors
    leaf = next(each for each in tensors if each.requires_grad)
    linear_cross_entropy(hidden, weight, targets, bias, reduction=reduction).sum().backward()
    assert [each.grad is not None for each in tensors] == list(needed)
    plain = F.cross_entropy(F.linear(hidden, weight, bias), targets, reduction=reduction).sum()
    torch.testing.assert_close(leaf.grad, *torch.autograd.grad(plain, leaf))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("way", ["in it", "autocast"])
def test_sixteen_bits_are_at_most_as_far_from_float64_as_plain_pytorch(dtype: torch.dtype, way: str) -> None:
    torch.manual_seed(3)
    wide = (torch.randn(300, 32), 0.3 * torch.randn(2000, 32))
    rounded = tuple(each.to(dtype) for each in wide)
    targets = torch.randint(2000, (300,))
    exact = tuple(each.double().requires_grad_() for each in rounded)
    loss = F.cross_entropy(exact[0] @ exact[1].T, targets)
    truth = (loss.detach(), *torch.autograd.grad(1000 * loss, exact))
    errors = []
    for compute in (linear_cross_entropy, lambda x, w, t: F.cross_entropy(F.linear(x, w), t)):
        leaves = tuple(each.clone().requires_grad_() for each in (rounded if way == "in it" else wide))
        with torch.autocast("cpu", dtype, enabled=way == "autocast"):
            loss = compute(*leaves, targets)
        found = (loss.detach(), *torch.autograd.grad(1000 * loss, leaves))
        errors.append([float((a.double() - b).abs().max()) for a, b in zip(found, truth, strict=True)])
        if compute is linear_cross_entropy:
            assert loss.dtype == torch.float32
            assert [each.dtype for each in found[1:]] == [leaf.dtype for leaf in leaves]
            if way == "in it" and kernel._operand(leaves[0], leaves[0]).dtype == torch.float32:
                half_a_step = 0.51 * torch.finfo(dtype).eps * truth[2].abs() + 1e-6
                assert bool(((found[2].double() - truth[2]).abs() <= half_a_step).all())
    ours, plain = errors
    assert all(own <= 1.01 * theirs for own, theirs in zip(ours, plain, strict=True)), errors


def test_gradients_are_summed_over_tokens_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table rounded after each of 375 parts would stop at 1,024, where a step of bfloat16 is 8."""
    monkeypatch.setattr(kernel, "_MOST", 16)
    table = ww.TokenEmbedding.from_weight(torch.zeros(3, 1, dtype=torch.bfloat16))
    hidden = torch.ones(6000, 1, dtype=torch.bfloat16)
    table.loss(hidden, torch.zeros(6000, dtype=torch.long), reduction="sum").backward()
    wanted = torch.tensor([-4000, 2000, 2000]).bfloat16()
    assert torch.equal(table.weight.grad[:, 0], wanted)


@pytest.mark.usefixtures("room")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("tokens", [0, 4])
def test_no_target_that_counts(tokens: int, reduction: str, dtype: torch.dtype) -> None:
    """As in PyTorch: the sum is 0, the mean NaN, and gradients are zeros."""
    weight = torch.randn(V, D, dtype=dtype, requires_grad=True)
    hidden = torch.randn(tokens, D, dtype=dtype, requires_grad=True)
    targets, found = torch.full((tokens,), -100), []
    for compute in (linear_cross_entropy, lambda x, w, t, **how: F.cross_entropy(F.linear(x, w), t, **how)):
        loss = compute(hidden, weight, targets, reduction=reduction)
        loss.sum().backward()
        found.append((loss.detach().float(), hidden.grad, weight.grad))
        hidden.grad = weight.grad = None
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, equal_nan=True)


def test_any_number_is_ignored_and_targets_may_be_of_any_dtype() -> None:
    hidden, weight, bias, targets = given(torch.float32)
    targets = targets.clamp(min=0).to(torch.uint8)
    targets[1] = 28
    wanted = F.cross_entropy(F.linear(hidden, weight, bias), targets.long(), ignore_index=28)
    torch.testing.assert_close(linear_cross_entropy(hidden, weight, targets, bias, ignore_index=28), wanted)
    assert linear_cross_entropy(hidden, weight, targets, bias) != wanted


def test_vectors_that_do_not_count_are_not_computed() -> None:
    hidden, weight, _, targets = given()
    with torch.no_grad():
        hidden[targets == -100] = torch.nan
    loss = linear_cross_entropy(hidden, weight, targets)
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(weight.grad).all()
    assert not hidden.grad[targets == -100].any()


@pytest.mark.parametrize("reduction", ["sum", "none"])
def test_a_retained_graph_has_the_same_gradients_again(reduction: str) -> None:
    hidden, weight, bias, targets = given()
    loss = linear_cross_entropy(hidden, weight, targets, bias, reduction=reduction, z_loss=0.1).sum()
    loss.backward(retain_graph=True)
    first = [each.grad.clone() for each in (hidden, weight, bias)]
    (3 * loss).backward()
    for leaf, one in zip((hidden, weight, bias), first, strict=True):
        torch.testing.assert_close(leaf.grad, 4 * one)


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_gradients_of_several_upstream_ones_at_once(reduction: str) -> None:
    hidden, weight, _, targets = given()
    losses = [
        linear_cross_entropy(hidden, weight, targets, reduction=reduction),
        F.cross_entropy(F.linear(hidden, weight), targets, reduction=reduction),
    ]
    g = torch.randn(3, *losses[0].shape, generator=torch.Generator().manual_seed(0))
    ours, plain = (torch.autograd.grad(loss, (hidden, weight), g, is_grads_batched=True) for loss in losses)
    torch.testing.assert_close(ours, plain)


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_a_second_derivative_is_refused_and_transforms_have_it(reduction: str) -> None:
    hidden, weight, _, targets = given()
    compute = partial(linear_cross_entropy, targets=targets, reduction=reduction)

    def plain(h: Tensor, w: Tensor) -> Tensor:
        return F.cross_entropy(F.linear(h, w), targets, reduction=reduction).sum()

    def second() -> None:
        (g,) = torch.autograd.grad(compute(hidden, weight).sum(), hidden, create_graph=True)
        torch.autograd.grad(g.sum() + weight.sum(), weight)

    with pytest.raises(ww.errors.SettingError, match=r"create_graph=True(.|\n)*readout"):
        second()

    def ours(h: Tensor, w: Tensor) -> Tensor:
        return compute(h, w).sum()

    h, w = hidden.detach(), weight.detach()
    for transform in (torch.func.grad, torch.func.hessian):
        torch.testing.assert_close(transform(ours)(h, w), transform(plain)(h, w))
    tangent = torch.randn_like(h)
    along = [torch.func.jvp(partial(one, w=w), (h,), (tangent,))[1] for one in (ours, plain)]
    torch.testing.assert_close(*along)
    with forward_ad.dual_level():
        dual = forward_ad.unpack_dual(ours(forward_ad.make_dual(h, tangent), w)).tangent
    torch.testing.assert_close(dual, along[1])


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_activation_checkpointing(dtype: torch.dtype, reentrant: bool) -> None:
    hidden, _, _, targets = given(dtype)
    table, found = ww.TokenEmbedding(V, D, init=1.0, dtype=dtype), []
    for call in (table.loss, partial(checkpoint, table.loss, use_reentrant=reentrant)):
        call(hidden, targets).backward()
        found.append((hidden.grad, table.weight.grad))
        hidden.grad = table.weight.grad = None
    torch.testing.assert_close(*found)


@pytest.mark.compile
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_it_is_one_graph(reduction: str, dtype: torch.dtype) -> None:
    hidden, _, _, targets = given(dtype)
    table = ww.TokenEmbedding(V, D, 3, init=1.0, dtype=dtype)

    def step(hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        log_probs, ids = table.top(hidden, 2)
        loss = table.loss(hidden, targets, reduction=reduction, z_loss=0.1, softcap=4.0)
        return loss.sum() + table.log_probs(hidden, ids).sum() + log_probs.sum(), ids

    compiled, found = torch.compile(step, fullgraph=True, backend="aot_eager"), []
    for call in (step, compiled):
        loss, ids = call(hidden, targets)
        loss.backward()
        found.append((loss.detach(), ids, hidden.grad, table.weight.grad))
        hidden.grad = table.weight.grad = None
    for eager, traced in zip(*found, strict=True):
        torch.testing.assert_close(traced, eager)
    wrong = compiled(hidden, torch.full_like(targets, -100))[0]
    assert torch.isnan(wrong) == (reduction == "mean")


@pytest.mark.usefixtures("room")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0,)])
@pytest.mark.parametrize("softcap", [None, 1.5])
def test_log_probs_are_those_of_a_log_softmax(
    shape: tuple[int, ...], dtype: torch.dtype, softcap: float | None
) -> None:
    table = ww.TokenEmbedding(V, D, 4, init=1.0, dtype=dtype)
    hidden = torch.randn(*shape, D, dtype=dtype, requires_grad=True)
    exact = tuple(each.detach().double().requires_grad_() for each in (hidden, table.weight))

    def every() -> Tensor:
        logits = exact[0] @ exact[1].T
        return (logits if softcap is None else softcap * (logits / softcap).tanh()).log_softmax(-1)

    # Where a CPU multiplies in bfloat16, logits from 4 on are rounded to steps of 1/32.
    tolerance = {torch.bfloat16: 0.04, torch.float32: 1e-5, torch.float64: 1e-12}[dtype]
    for several in ((), (4,)):
        ids = torch.randint(V, (*shape, *several))
        wanted = every().gather(-1, ids if several else ids[..., None]).reshape(ids.shape)
        found = table.log_probs(hidden, ids, softcap=softcap)
        assert found.dtype == torch.promote_types(dtype, torch.float32)
        torch.testing.assert_close(found.double(), wanted, rtol=0, atol=tolerance)
        ours = gradients(found, (hidden, table.weight))
        theirs = gradients(wanted, exact)
        theirs[1][4] = 0
        for own, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(own.double(), other, rtol=tolerance, atol=2 * tolerance)
    values, ids = table.top(hidden, 5, softcap=softcap)
    assert torch.equal(values, table.log_probs(hidden, ids, softcap=softcap))
    if dtype != torch.bfloat16:
        torch.testing.assert_close(values.double(), every().topk(5).values, rtol=0, atol=tolerance)
        torch.testing.assert_close(values.double(), every().gather(-1, ids), rtol=0, atol=tolerance)


def test_rows_that_row_adamw_has_not_updated_yet_are_updated_first() -> None:
    tables = [ww.TokenEmbedding(V, D, init=1.0) for _ in range(4)]
    hidden, _, _, targets = given(torch.float32)
    hidden = hidden.detach()
    calls: list[Callable[[ww.TokenEmbedding], Tensor]] = [
        lambda table: F.cross_entropy(table.readout(hidden), targets),
        lambda table: table.loss(hidden, targets),
        lambda table: -table.log_probs(hidden[targets >= 0], targets[targets >= 0]).mean(),
        lambda table: table.top(hidden, 1)[0].sum(),
    ]
    found = []
    for table in tables:
        table.load_state_dict(tables[0].state_dict())
    for table, call in zip(tables, calls, strict=True):
        optimizer = ww.RowAdamW(table, lr=0.5)
        for ids in (torch.arange(20), torch.arange(3), torch.arange(3)):
            table(ids).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        with pytest.raises(ww.errors.SettingError, match="tied"):
            call(table)
        with torch.no_grad():
            found.append(call(table))
    torch.testing.assert_close(found[1:3], [found[0]] * 2)
    with torch.no_grad():
        torch.testing.assert_close(found[3], tables[0].readout(hidden).log_softmax(1).amax(1).sum())


def test_a_factorized_table_has_the_same_and_a_table_in_a_file_refuses(tmp_path: Any) -> None:
    table = ww.FactorizedEmbedding(V, 4, D, 2, init=1.0)
    hidden, _, _, targets = given(torch.float32)
    leaves = (hidden, table.tokens.weight, table.projection.weight)
    plain = F.cross_entropy(table.readout(hidden), targets)
    torch.testing.assert_close(table.loss(hidden, targets), plain)
    torch.testing.assert_close(gradients(table.loss(hidden, targets), leaves), gradients(plain, leaves))
    wanted = table.readout(hidden).log_softmax(-1).topk(3)
    for found, true in zip(table.top(hidden, 3), wanted, strict=True):
        torch.testing.assert_close(found, true)
    FileTokenEmbedding.create(tmp_path / "table.safetensors", V, D)
    stored = FileTokenEmbedding(tmp_path / "table.safetensors")
    with pytest.raises(ww.errors.SettingError, match="a table in a file"):
        stored.loss(hidden, targets)


class Divided(ww.TokenEmbedding):
    """A table with logits of its own: divided by sqrt(dim), as in muP."""

    def readout(self, hidden: Tensor) -> Tensor:
        return super().readout(hidden) / D**0.5


@pytest.mark.compile
@pytest.mark.parametrize("softcap", [None, 1.5])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_a_readout_of_a_subclass_has_the_loss_of_its_logits(reduction: str, softcap: float | None) -> None:
    hidden, _, _, targets = given()
    table = Divided(V, D, 4, init=1.0, dtype=torch.float64)
    leaves = (hidden, table.weight)
    z = table.readout(hidden)
    assert torch.equal(z, F.linear(hidden, table.weight) / D**0.5)
    z = z if softcap is None else softcap * (z / softcap).tanh()
    plain = F.cross_entropy(z, targets, reduction=reduction, label_smoothing=0.1)
    ours = table.loss(hidden.view(1, N, D), targets[None], reduction=reduction, softcap=softcap, label_smoothing=0.1)
    torch.testing.assert_close(ours.view_as(plain), plain)
    torch.testing.assert_close(gradients(ours, leaves), gradients(plain, leaves))
    wanted = z.log_softmax(-1)
    torch.testing.assert_close(
        table.log_probs(hidden, targets.clamp(min=0), softcap),
        -F.nll_loss(wanted, targets.clamp(min=0), reduction="none"),
    )
    for found, true in zip(table.top(hidden, 3, softcap), wanted.topk(3), strict=True):
        torch.testing.assert_close(found, true)
    loss = partial(table.loss, reduction=reduction, softcap=softcap, label_smoothing=0.1)
    whole = torch.compile(loss, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(whole(hidden, targets), plain)


def most_bytes(run: Callable[[], object]) -> int:
    """Return the bytes that PyTorch's allocator has handed out at the peak of a run, beyond those at its start."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiled:
        run()
    events = sorted(profiled.profiler.kineto_results.events(), key=lambda event: event.start_ns())
    return max(accumulate(event.nbytes() for event in events if event.name() == "[memory]"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_memory_of_the_loss_beside_that_of_plain_pytorch(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 1,024 tokens, 256 features and 128,256 rows; an eighth of tokens, features and room, and so of all bytes."""
    monkeypatch.setattr(kernel, "_ROOM", {"cpu": tuple(room // 8 for room in kernel._ROOM["cpu"])})
    monkeypatch.setattr(kernel, "_FEWEST", kernel._FEWEST // 8)
    hidden, targets = torch.randn(128, 32, dtype=dtype, requires_grad=True), torch.randint(128_256, (128,))
    table = ww.TokenEmbedding(128_256, 32, dtype=dtype)
    plain = most_bytes(lambda: F.cross_entropy(table.readout(hidden), targets).backward())
    assert plain >= 3 * 128 * 128_256 * dtype.itemsize
    table.zero_grad()
    for compute in (
        lambda: table.loss(hidden, targets).backward(),
        lambda: table.loss(hidden, targets, reduction="none").sum().backward(),
        lambda: table.top(hidden, 5),
    ):
        assert most_bytes(compute) < 0.15 * plain
        table.zero_grad()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_table_of_more_than_two_to_the_31_numbers(dtype: torch.dtype) -> None:
    """All rows are one row of memory, so that only the bias tells them apart: the loss is that of the bias alone."""
    rows, dim = (1 << 21) + 3, 1 << 10
    weight, bias = torch.randn(1, dim, dtype=dtype).expand(rows, dim), torch.randn(rows, dtype=dtype)
    hidden, targets = torch.randn(2, dim, dtype=dtype), torch.tensor([rows - 1, 5])
    wanted = bias.float().logsumexp(0) - bias[targets].float()
    with torch.no_grad():
        losses = linear_cross_entropy(hidden, weight, targets, bias, reduction="none")
    torch.testing.assert_close(losses, wanted, rtol=0, atol=2e-4)


class Doubled(Tensor):
    """A weight that is a subclass of Tensor, as quantizers have them: its products are twice as large."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is F.linear:
            return 2 * F.linear(args[0], args[1].as_subclass(Tensor))
        return super().__torch_function__(function, types, args, kwargs or {})


def test_a_weight_of_another_class_computes_its_own_products() -> None:
    hidden, weight, _, targets = given()
    other = weight.detach().as_subclass(Doubled)
    torch.testing.assert_close(
        linear_cross_entropy(hidden, other, targets), F.cross_entropy(2 * hidden @ weight.T, targets)
    )


HIDDEN, TABLE, TARGETS = torch.zeros(4, D), ww.TokenEmbedding(V, D), torch.zeros(4, dtype=torch.long)
OF_31 = torch.tensor([0, 31, 1, 2])
REFUSED = """
TABLE.loss(HIDDEN, OF_31) ->                            TokenError: target 31 at (1,) is outside … ignore_index
TABLE.loss(HIDDEN, -OF_31) ->                           TokenError: target -31 at (1,)
TABLE.loss(HIDDEN, TARGETS.float()) ->                  TokenError: dtype torch.float32
TABLE.loss(HIDDEN, TARGETS[:3]) ->                      ShapeError: (4, 6) need targets of shape (4,), but got (3,)
TABLE.loss(HIDDEN[:, :5], TARGETS) ->                   ShapeError: (..., 6), but got (4, 5)
TABLE.loss(HIDDEN.double(), TARGETS) ->                 ShapeError: are torch.float64 … hidden.to(torch.float32)
TABLE.loss(HIDDEN, TARGETS, reduction="all") ->         SettingError: mean, sum, none
TABLE.loss(HIDDEN, TARGETS, softcap=0.0) ->             SettingError: softcap=0.0
TABLE.loss(HIDDEN, TARGETS, z_loss=-1.0) ->             SettingError: z_loss=-1.0
TABLE.loss(HIDDEN, TARGETS, label_smoothing=1.5) ->     SettingError: label_smoothing=1.5
TABLE.log_probs(HIDDEN, OF_31) ->                       TokenError: id 31 at (1,) is outside
TABLE.log_probs(HIDDEN, TARGETS[:3]) ->                 ShapeError: need ids of shape (4,), but got (3,)
TABLE.log_probs(HIDDEN, TARGETS, softcap=-1.0) ->       SettingError: softcap=-1.0
TABLE.top(HIDDEN, 32) ->                                ShapeError: k=32 … 31 tokens
TABLE.top(HIDDEN, 0) ->                                 ShapeError: k=0
"""


@short_refusals(REFUSED)
@pytest.mark.usefixtures("our_own_checks")
def test_what_is_refused(call: str, error: str, parts: str) -> None:
    require_refused(call, error, parts, globals())
