"""Attention over blocks of keys, merged by the logarithms of their sums: equal to attention over all keys."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from beartype.roar import BeartypeCallHintParamViolation
from torch import Tensor

import whatwhere as ww
from whatwhere.errors import PositionError, SettingError, ShapeError
from whatwhere.position.positions import SHARD_ORDERS, ShardOrder
from whatwhere.where import attention as engines
from whatwhere.where.attention import merge_attention
from whatwhere.where.catalogue import catalogue

HEADS, HEAD_DIM, DIM, TOKENS = 4, 8, 32, 16
POSITIONS: dict[str, Callable[[], ww.Positions]] = {
    "one document": lambda: ww.positions(TOKENS),
    "packed": lambda: ww.Positions.packed([5, 8, 3]),
    "padded": lambda: ww.Positions.from_mask(torch.arange(TOKENS) >= torch.tensor([[0], [7]])),
    "offset": lambda: ww.positions(TOKENS, start=torch.tensor([3, 40])),
}
BLOCKS: dict[ShardOrder, int] = {"contiguous": 4, "zigzag": 2, "striped": 2}
TRIED = {"contiguous": ["one document"], "zigzag": ["packed", "offset"], "striped": ["packed", "padded"]}
NEEDS_ALL = ("fox", "cope")  # sums over the keys between


def sampled(where: ww.Where) -> ww.Where:
    """Return a Where in float64, with all its parameters sampled."""
    torch.manual_seed(0)
    for weights in where.parameters():
        if not bool(weights.any()):
            torch.nn.init.normal_(weights, std=0.5)
    return where.double()


def inputs(batch: int = 2) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(batch, TOKENS, DIM, generator=generator, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(DIM, 3 * DIM, generator=generator, dtype=torch.float64) * DIM**-0.5
    return x, weights


def projected(where: ww.Where, p: ww.Positions, x: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    here = where.at(p)
    q, k, v = (here.input(x) @ weights).unflatten(-1, (3, HEADS, HEAD_DIM)).permute(2, 0, 3, 1, 4)
    return *here.query_key(q, k, increments=here.increments(x)), v


def whole(where: ww.Where, p: ww.Positions, **options: Any) -> list[Tensor]:
    x, weights = inputs()
    q, k, v = projected(where, p, x, weights)
    here = where.at(p)
    return graded(where, x, here.attention(q, k, v, gates=here.gates(x), **options))


def by_blocks(where: ww.Where, p: ww.Positions, order: ShardOrder, **options: Any) -> list[Tensor]:
    """Return output and gradients, each shard of queries against one block of keys after another."""
    x, weights = inputs()
    q, k, v = projected(where, p, x, weights)
    n, outputs = BLOCKS[order], []
    all_slots = p.shard_slots(n, order)
    for own in all_slots:
        parts = []
        for slots in all_slots:
            here = where.at(p.take(own), p.take(own) if slots is own else p.take(slots))
            parts.append(
                here.attention_with_lse(
                    q[:, :, own],
                    k[:, :, slots],
                    v[:, :, slots],
                    gates=here.gates(x[:, own]),
                    **options,
                )
            )
        outputs.append(here.merge(parts))
    return graded(where, x, torch.cat(outputs, dim=2)[:, :, all_slots.flatten().argsort()])


def graded(where: ww.Where, x: Tensor, y: Tensor) -> list[Tensor]:
    """Return an output and the gradients of x and of the scheme's parameters."""
    upstream = torch.randn(y.shape, generator=torch.Generator().manual_seed(2), dtype=y.dtype)
    trained = [x, *where.parameters()]
    found = torch.autograd.grad((y * upstream).sum(), trained, allow_unused=True)
    return [y.detach(), *(torch.zeros_like(a) if g is None else g for a, g in zip(trained, found, strict=True))]


def assert_equal(found: list[Tensor], wanted: list[Tensor]) -> None:
    for a, b in zip(found, wanted, strict=True):
        assert torch.isfinite(a).all()
        torch.testing.assert_close(a, b, atol=1e-11, rtol=1e-9)


@pytest.mark.every_nth(7)
@pytest.mark.parametrize("order", SHARD_ORDERS)
@pytest.mark.parametrize("name", catalogue)
def test_every_scheme_in_every_order(name: str, order: ShardOrder) -> None:
    length = 8 if catalogue[name].follows_length else TOKENS + 40
    where = sampled(ww.scheme(name, DIM, HEADS, length))
    for kind in TRIED[order]:
        p = POSITIONS[kind]()
        if name in NEEDS_ALL:
            with pytest.raises(PositionError, match="sums over all tokens between a query and a key"):
                by_blocks(where, p, order)
        else:
            assert_equal(by_blocks(where, p, order), whole(where, p))


@pytest.mark.every_nth(5)
@pytest.mark.parametrize("order", SHARD_ORDERS)
@pytest.mark.parametrize(
    "window",
    [ww.Window(3), ww.Window(5, first=2), ww.Window(6, chunked=True), ww.Window(20, by="coordinates")],
    ids=str,
)
def test_windows_and_sinks(window: ww.Window, order: ShardOrder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sink enters once, a window has the size of the whole's; also in chunks of queries."""
    where = sampled(ww.Where(ww.Rotary(HEAD_DIM), ww.T5(HEADS), window=window, sink=ww.Sink(HEADS)))
    for kind in TRIED[order]:
        p = POSITIONS[kind]()
        assert_equal(by_blocks(where, p, order), wanted := whole(where, p))
    monkeypatch.setattr(engines, "_MAX_TABLE", 0)
    monkeypatch.setattr(engines, "_rows_of_chunk", lambda *_: 3)
    assert_equal(by_blocks(where, p, order), wanted)


@pytest.mark.parametrize("causal", [True, False])
def test_grouped_queries_and_a_mask(causal: bool) -> None:
    generator = torch.Generator().manual_seed(3)
    q, k, v = (
        torch.randn(2, heads, TOKENS, size, generator=generator, dtype=torch.float64, requires_grad=True)
        for heads, size in ((4, 8), (2, 8), (2, 12))
    )
    mask = torch.rand(2, 4, TOKENS, TOKENS, generator=generator) < 0.4  # some queries see nothing of some blocks
    mask[0, 1, 5] = False  # and one nothing at all
    where, p = ww.Where(ww.KERPLE(4)).double(), ww.positions(TOKENS)
    parts = [
        where.at(p, p[a : a + 4]).attention_with_lse(
            q, k[:, :, a : a + 4], v[:, :, a : a + 4], causal=causal, mask=mask[..., a : a + 4]
        )
        for a in range(0, TOKENS, 4)
    ]
    merged, wanted = where.at(p).merge(parts), where.at(p).attention(q, k, v, causal=causal, mask=mask)
    upstream = torch.randn(wanted.shape, generator=generator, dtype=torch.float64)
    inputs = [q, k, v, *where.parameters()]
    found, expected = (torch.autograd.grad((y * upstream).sum(), inputs) for y in (merged, wanted))
    assert_equal([merged, *found], [wanted, *expected])
    assert not merged[0, 1, 5].any()
    assert merge_attention(parts)[1][0, 1, 5] == -torch.inf


def formula(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, scale: float | None) -> tuple[Tensor, Tensor]:
    scores = q @ k.mT * (scale or q.shape[-1] ** -0.5) + bias
    return scores.softmax(-1) @ v, scores.logsumexp(-1)


@pytest.mark.parametrize("kernel", ["formula", "table", "chunks", "blocks"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("scheme", [ww.ALiBi, ww.T5], ids=["fixed", "learned"])
def test_each_engine_returns_the_logarithms(
    scheme: Any, dtype: torch.dtype, kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outputs and logarithms, and the gradients of both, are those of the formula in float64."""
    monkeypatch.setattr(engines, "_MIN_BLOCKWISE", 8 if kernel == "blocks" else 1000)
    monkeypatch.setattr(engines, "_MAX_TABLE", 0 if kernel == "chunks" else 1 << 22)
    generator = torch.Generator().manual_seed(4)
    q, k, v = torch.randn(3, 2, HEADS, 40, HEAD_DIM, generator=generator).to(dtype).requires_grad_()
    where = ww.Where(score=scheme(HEADS))
    for weights in where.parameters():
        torch.nn.init.normal_(weights, generator=generator)
    where = where.double() if dtype == torch.float64 else where
    here = where.at(40)
    options: dict[str, Any] = {"engine": "dense"} if kernel == "formula" else {}
    y, lse = here.attention_with_lse(q, k, v, **options)
    assert y.dtype == dtype
    assert lse.dtype == torch.promote_types(dtype, torch.float32)
    wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
    wanted = formula(*wide, where.score(40, causal=True).double(), where.scale)
    to_y, to_lse = (torch.randn(x.shape, generator=generator, dtype=torch.float64) for x in wanted)
    given, trained = [q, k, v, *where.parameters()], [*wide, *where.parameters()]
    found = torch.autograd.grad((y * to_y).sum() + (lse * to_lse).sum(), given)
    expected = torch.autograd.grad((wanted[0] * to_y).sum() + (wanted[1] * to_lse).sum(), trained)
    within = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 0.02}[dtype]
    for a, b in zip((y, lse, *found), (*wanted, *expected), strict=True):
        assert (a - b).abs().max() <= within * b.detach().abs().max().clamp(min=1)


@pytest.mark.compile
def test_flex_returns_the_logarithms() -> None:
    q, k, v = torch.randn(3, 2, HEADS, 40, HEAD_DIM, generator=torch.Generator().manual_seed(4))
    where, p = ww.Where(ww.ALiBi(HEADS), sink=ww.Sink(HEADS)), ww.positions(40)
    with torch.no_grad():
        parts = [
            where.at(p, p[a : a + 20]).attention_with_lse(q, k[:, :, a : a + 20], v[:, :, a : a + 20], engine="flex")
            for a in (0, 20)
        ]
        torch.testing.assert_close(where.at(p).merge(parts), where.at(p).attention(q, k, v))
    assert (parts[1][1][:, :, :20] == -torch.inf).all()  # they see no key of the second block


def test_errors() -> None:
    y, lse = torch.zeros(1, 2, 3, 4), torch.zeros(1, 2, 3)
    for parts in ([], [(y, lse), (y[:, :, 1:], lse[:, :, 1:])], [(y, lse[:, :, 1:])]):
        with pytest.raises((ShapeError, BeartypeCallHintParamViolation), match=r"of the same queries|type hint"):
            merge_attention(parts)


def test_a_second_derivative_is_an_error() -> None:
    q, k, v = torch.randn(3, 1, 1, 4, 4, requires_grad=True)
    y, _ = ww.Where().at(4).attention_with_lse(q, k, v)
    (first,) = torch.autograd.grad(y.sum(), q, create_graph=True)
    with pytest.raises(SettingError, match="no second derivative"):
        torch.autograd.grad(first.sum() + v.sum(), v)


def test_no_queries_have_no_logarithms() -> None:
    q, k = torch.randn(2, HEADS, 0, HEAD_DIM), torch.randn(2, HEADS, 3, HEAD_DIM)
    y, lse = ww.Where().at(ww.positions(0), ww.positions(3)).attention_with_lse(q, k, k, causal=False)
    assert (y.shape, lse.shape) == (q.shape, q.shape[:3])
