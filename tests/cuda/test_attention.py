"""The kernel `flash` against the formula in float64: outputs, logarithms, and the gradients of all that has some."""

import copy
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

import whatwhere as ww
from whatwhere.errors import PositionError, SettingError
from whatwhere.kernels import backend, flash_attention
from whatwhere.where import attention as engines
from whatwhere.where.score_bias import DistanceBias

from ..kernels.inputs import LAYOUTS

kernels = pytest.importorskip("whatwhere.kernels.cuda.attention", reason="needs Triton, which is not installed here")

HEADS, KEY_HEADS, HEAD_DIM = 2, 1, 16
P = ww.positions(21)
PACKED = ww.Positions.packed([9, 1, 11])
LEFT = ww.Positions.from_mask(torch.arange(21) >= torch.tensor([[0], [12]]))
SAMPLED = ww.Positions.randomized(21, 60, batch=2, generator=torch.Generator().manual_seed(0))


@dataclass(frozen=True)
class Case:
    """A Where, the positions of queries and keys, and how they attend."""

    score: Callable[[], ww.ScoreBias | None]
    queries: ww.Positions = P
    keys: ww.Positions | None = None
    causal: bool = True
    window: ww.Window | None = None
    sink: bool = False
    key_heads: int = KEY_HEADS
    sizes: tuple[int, int] = (HEAD_DIM, HEAD_DIM)


def t5(**how) -> ww.T5:
    return ww.T5(HEADS, num_buckets=6, max_distance=6, scale=None, **how)


class Curved(DistanceBias):
    """One learned number for each distance up to 50."""

    num_heads = HEADS

    def __init__(self, ends: int) -> None:
        super().__init__()
        self.weight, self.ends = torch.nn.Parameter(torch.randn(HEADS, ends)), ends

    def curve(self, device):
        return lambda head, distance: self.weight[head, distance.abs().clamp(max=self.ends - 1)]


class OfDistance(DistanceBias):
    """One number for all heads at each distance."""

    num_heads = HEADS

    def curve(self, device):
        return lambda head, distance: -0.5 * distance.abs()


CASES = {
    "causal": Case(lambda: None),
    "bidirectional": Case(lambda: None, causal=False),
    "slopes": Case(lambda: ww.ALiBi(HEADS)),
    "slopes, bidirectional": Case(lambda: ww.ALiBi(HEADS), causal=False),
    "KERPLE": Case(lambda: ww.KERPLE(HEADS)),
    "KERPLE of powers": Case(lambda: ww.KERPLE(HEADS, kind="power"), causal=False),
    "T5": Case(t5),
    "T5, bidirectional": Case(lambda: t5(bidirectional=True), causal=False),
    "Sandwich": Case(lambda: ww.Sandwich(HEADS)),
    "window": Case(lambda: None, window=ww.Window(5)),
    "window, first tokens and a sink": Case(lambda: ww.ALiBi(HEADS), window=ww.Window(6, first=2), sink=True),
    "window to both sides": Case(lambda: ww.KERPLE(HEADS), causal=False, window=ww.Window(4)),
    "chunks": Case(lambda: t5(), window=ww.Window(10, chunked=True)),
    "chunks of documents": Case(lambda: None, PACKED, window=ww.Window(5, chunked=True, first=1)),
    "sink": Case(lambda: t5(), sink=True),
    "documents": Case(t5, PACKED),
    "documents, bidirectional": Case(lambda: ww.KERPLE(HEADS), PACKED, causal=False),
    "rows without keys": Case(lambda: ww.KERPLE(HEADS), LEFT, sink=True),
    "sampled": Case(t5, SAMPLED),
    "a KV cache": Case(t5, P[15:], P),
    "one token": Case(lambda: ww.KERPLE(HEADS), P[:1]),
    "one query": Case(lambda: ww.ALiBi(HEADS), P[20:], P),
    "fewer keys": Case(lambda: t5(bidirectional=True), P, ww.positions(11), causal=False),
    "far from 0": Case(lambda: ww.ALiBi(HEADS), ww.positions(21, start=2**40)),
    "heads of their own": Case(lambda: ww.ALiBi(HEADS), key_heads=HEADS),
    "any curve": Case(lambda: Curved(20)),
    "a curve of no head": Case(OfDistance),
    "padded heads": Case(lambda: ww.KERPLE(HEADS), sizes=(24, 40)),
}


@pytest.fixture
def small(monkeypatch, target) -> torch.device:
    """Small tiles in the interpreter, where the kernel takes float32, too."""
    if target.type == "cpu":
        monkeypatch.setattr(kernels, "FORWARD_TILES", {256: (16, 8, 4, 1)})
        monkeypatch.setattr(kernels, "BACKWARD_TILES", {256: (8, 16, 4, 1)})
        monkeypatch.setattr(backend, "on_gpu", lambda name, *tensors: getattr(kernels, name, None))
    return target


def made(case: Case) -> ww.Where:
    torch.manual_seed(0)
    where = ww.Where(score=case.score(), window=case.window, sink=ww.Sink(HEADS) if case.sink else None)
    for weight in where.parameters():
        torch.nn.init.normal_(weight)
    return where


def drawn(case: Case, dtype: torch.dtype, device: torch.device) -> list[Tensor]:
    g = torch.Generator().manual_seed(1)
    keys = case.queries if case.keys is None else case.keys
    shapes = ((HEADS, case.queries, 0), (case.key_heads, keys, 0), (case.key_heads, keys, 1), (HEADS, case.queries, 1))
    return [
        torch.randn(case.queries.batch, n, p.tokens, case.sizes[of], generator=g).to(device, dtype)
        for n, p, of in shapes
    ]


def computed(case: Case, where: ww.Where, given: list[Tensor], engine: str) -> dict[str, Tensor]:
    """Return the output and the gradients of what has some."""
    q, k, v = (x.clone().requires_grad_() for x in given[:3])
    positions = [None if p is None else p.to(q.device) for p in (case.queries, case.keys)]
    y = where.at(*positions).attention(q, k, v, causal=case.causal, engine=engine)
    named = {"q": q, "k": k, "v": v, **dict(where.named_parameters())}
    return {"y": y.detach()} | dict(zip(named, torch.autograd.grad(y, [*named.values()], given[3]), strict=True))


def require_near(results: dict[str, Tensor], wanted: dict[str, Tensor], tolerance: float) -> None:
    """Compare the numbers of each tensor, by the largest of them."""
    for name, expected in wanted.items():
        assert results[name].shape == expected.shape
        apart = (results[name].double() - expected).abs().max() if expected.numel() else 0.0
        assert apart <= tolerance * max(float(expected.abs().max()), 0.05), f"{name}: {apart:.1e}"


@pytest.mark.every_nth(7)
@pytest.mark.parametrize("name", CASES)
def test_outputs_and_gradients_are_the_formulas(name, small, monkeypatch):
    """In the interpreter in float32, whose rounding hides nothing."""
    case, dtype = CASES[name], torch.bfloat16
    if small.type == "cpu":
        monkeypatch.setattr(engines, "why_not_flash", lambda *given: None)
        dtype = torch.float32
    where, given = made(case).to(small), drawn(case, dtype, small)
    wanted = computed(case, copy.deepcopy(where).double(), [x.double() for x in given], "dense")
    require_near(computed(case, where, given, "flash"), wanted, 2e-5 if dtype == torch.float32 else 0.03)


@pytest.mark.every_nth(3)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["T5", "window, first tokens and a sink"])
def test_sixteen_bits_are_rounded_once(name, dtype, small):
    case = CASES[name]
    where, given = made(case).to(small), drawn(case, dtype, small)
    results = computed(case, where, given, "flash")
    assert results["y"].dtype == results["q"].dtype == dtype
    assert all(results[key].dtype == torch.float32 for key in dict(where.named_parameters()))
    wanted = computed(case, copy.deepcopy(where).double(), [x.double() for x in given], "dense")
    require_near(results, wanted, 4 * torch.finfo(dtype).eps)


def test_sinks_of_minus_infinity_are_none(small):
    case = CASES["rows without keys"]
    where, given = made(case).to(small), drawn(case, torch.bfloat16, small)
    torch.nn.init.constant_(where.sink.weight, -torch.inf)
    results = computed(case, where, given, "flash")
    wanted = computed(case, where, [x.float() for x in given], "dense")
    require_near(results, {name: x.double() for name, x in wanted.items()}, 0.03)


def test_the_same_bits_twice(small):
    case = CASES["T5"]
    where, given = made(case).to(small), drawn(case, torch.bfloat16, small)
    one, other = (computed(case, where, given, "flash") for _ in range(2))
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("case", [Case(t5, LEFT), Case(lambda: ww.KERPLE(HEADS), P[15:], P)], ids=["padded", "cache"])
def test_logarithms_of_parts_of_the_keys(case, small, monkeypatch):
    """And their gradients; a query without keys has minus infinity."""
    if small.type == "cpu":
        monkeypatch.setattr(engines, "why_not_flash", lambda *given: None)
    where, results = made(case).to(small), []
    given = drawn(case, torch.float32 if small.type == "cpu" else torch.bfloat16, small)
    for engine, wide in (("flash", given[0].dtype), ("dense", torch.float64)):
        q, k, v = (x.to(wide).requires_grad_() for x in given[:3])
        scheme = copy.deepcopy(where).to(wide if wide == torch.float64 else torch.float32)
        positions = [None if p is None else p.to(small) for p in (case.queries, case.keys)]
        y, logs = scheme.at(*positions).attention_with_lse(q, k, v, engine=engine)
        finite = logs.isfinite()
        leaves = [q, k, v, *scheme.parameters()]
        loss = (y * given[3]).sum() + logs.masked_fill(~finite, 0).square().sum()
        named = {str(n): x for n, x in enumerate(torch.autograd.grad(loss, leaves))}
        results.append((finite, {"y": y.detach(), "l": logs.detach().masked_fill(~finite, 0), **named}))
    assert torch.equal(results[0][0], results[1][0])
    require_near(results[0][1], results[1][1], 2e-5 if small.type == "cpu" else 0.03)


@pytest.mark.filterwarnings("ignore:All-NaN")
def test_masked_tiles_are_never_visited(small):
    """Their keys may be NaN, which would show."""
    if small.type != "cpu":
        pytest.skip("on a GPU one tile has all of these tokens")
    case = Case(lambda: None, window=ww.Window(4))
    where, given = made(case), drawn(case, torch.bfloat16, small)
    q, k, v = (x.clone() for x in given[:3])
    k[:, :, :8], v[:, :, :8] = torch.nan, torch.nan
    expected, y = (where.at(P).attention(*some, engine="flash") for some in (given[:3], (q, k, v)))
    assert torch.equal(y[:, :, 16:], expected[:, :, 16:])
    assert bool(y[:, :, :8].isnan().all())


@pytest.mark.parametrize("layout", ["heads behind tokens", "features behind tokens", "not on a border"])
def test_any_layout(layout, small):
    case = CASES["slopes"]
    where, given = made(case).to(small), drawn(case, torch.float16, small)
    result, wanted = (computed(case, where, some, "flash") for some in ([LAYOUTS[layout](x) for x in given], given))
    assert all(torch.equal(result[name], wanted[name]) for name in wanted)


def test_tokens_that_lie_far_apart(small):
    """At strides of which 32 bits count 128 no more; what lies between them is never touched."""
    case = CASES["slopes"]
    where, given = made(case).to(small), drawn(case, torch.float16, small)
    q, far = given[0], torch.empty(20 * 2**27 + 64, dtype=torch.float16, device=small)
    apart = far.as_strided(q.shape, (0, HEAD_DIM, 2**27, 1)).copy_(q)
    assert torch.equal(*(where.at(P.to(small)).attention(x, *given[1:3], engine="flash") for x in (apart, q)))


@pytest.mark.parametrize("shape", [(0, 21), (2, 0)])
def test_nothing_attends_to_nothing(shape, small):
    q = torch.zeros(shape[0], HEADS, shape[1], HEAD_DIM, dtype=torch.bfloat16, device=small)
    assert ww.Where(ww.ALiBi(HEADS)).at(shape[1]).attention(q, q, q, engine="flash").shape == q.shape


def test_any_bias_by_distance_is_read_but_few_are_learned(small, monkeypatch):
    case = Case(lambda: Curved(20))
    where, given = made(case).to(small), drawn(case, torch.float16, small)
    with torch.no_grad():
        y = where.at(P.to(small)).attention(*given[:3], engine="flash")
        here, wide = copy.deepcopy(where).double().at(P.to(small)), [x.double() for x in given[:3]]
        wanted = here.attention(*wide, engine="dense")
    torch.testing.assert_close(y.double(), wanted, rtol=0, atol=4e-3)
    monkeypatch.setattr(flash_attention, "MAX_LEARNED", 40)
    with pytest.raises(SettingError, match="40 learned numbers a head, not of 41"):
        where.at(P.to(small)).attention(*given[:3], engine="flash")


@pytest.mark.parametrize(
    ("make", "how"),
    [
        (lambda: ww.Where(ww.FIRE(HEADS)), {}),
        (lambda: ww.Where(ww.Shaw(HEAD_DIM, HEADS)), {}),
        (lambda: ww.Where(ww.ALiBi(HEADS)), {"mask": torch.ones(1, 1, 21, 21, dtype=torch.bool)}),
    ],
)
def test_other_biases_are_refused(make, how, small):
    q, k, v, _ = drawn(Case(lambda: None), torch.float16, small)
    how = {name: x.to(small) for name, x in how.items()}
    with pytest.raises(SettingError, match="by distance, over positions of one axis, and its mask one of positions"):
        make().to(small).at(P.to(small)).attention(q, k, v, engine="flash", **how)


def test_a_line_of_more_distances_than_memory_has_is_refused(small):
    q, k, v, _ = drawn(Case(lambda: None), torch.float16, small)
    here = ww.Where(ww.Sandwich(HEADS)).at(ww.positions(21, start=2**33, device=small))
    with pytest.raises(SettingError, match="its bias must be one by distance"):
        here.attention(q, k, v, engine="flash")


def test_positions_that_are_too_far_apart_are_refused(small):
    if small.type != "cpu":
        pytest.skip("on a GPU it stops the program")
    p = ww.Positions.from_coordinates(torch.tensor([0, 2**31, 5]))
    q = torch.zeros(1, HEADS, 3, HEAD_DIM, dtype=torch.float16)
    with pytest.raises(PositionError, match=r"2147483648 apart, at .*\n.*engine='flex'"):
        ww.Where(ww.ALiBi(HEADS)).at(p).attention(q, q, q, engine="flash")


def test_a_second_derivative_is_refused(small):
    case = CASES["causal"]
    where, (q, k, v, _) = made(case), drawn(case, torch.float16, small)
    q.requires_grad_()
    y = where.at(P.to(small)).attention(q, k, v, engine="flash")
    (slope,) = torch.autograd.grad(y.float().sum(), q, create_graph=True)
    with pytest.raises(SettingError, match="no second derivative"):
        torch.autograd.grad(slope.float().sum() + q.float().sum(), q)
