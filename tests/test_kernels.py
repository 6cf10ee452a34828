"""The fast paths of attention give the numbers of the plain formula, and hold no table."""

import jaxtyping
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import whatwhere as ww
from whatwhere import attention
from whatwhere.kernels.fold import fold_attention, folds
from whatwhere.kernels.toeplitz import toeplitz_attention, views
from whatwhere.where.score.alibi import slopes

TOKENS, HEAD_DIM = 300, 16


@pytest.fixture(autouse=True)
def _at_any_length(monkeypatch):
    """Use the fast paths for few tokens too."""
    monkeypatch.setattr(attention, "_FEW", 1)


class Bumps(ww.DistanceBias):
    """A learned number for each head and distance modulo 7, and another at later keys."""

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        generator = torch.Generator().manual_seed(1)
        self.weight = nn.Parameter(torch.randn(num_heads, 14, generator=generator))

    def curve(self, device):
        return lambda head, distance: self.weight[head, torch.where(distance < 0, 7, 0) + distance % 7]


class Largest(TorchDispatchMode):
    """Note the size of the largest tensor that any operation gives."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, Tensor):
                self.numbers = max(self.numbers, tensor.untyped_storage().nbytes() // tensor.element_size())
        return out


def vectors(heads: int, key_heads: int | None = None, tokens: int = TOKENS, dtype=torch.float32) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(2, n, tokens, HEAD_DIM, generator=generator).to(dtype).requires_grad_()
        for n in (heads, key_heads or heads, key_heads or heads)
    ]


def exact(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, causal: bool) -> Tensor:
    """The formula in float64."""
    groups, tokens = q.shape[1] // k.shape[1], q.shape[2]
    wide_k, wide_v = (x.double().repeat_interleave(groups, dim=1) for x in (k, v))
    scores = q.double() @ wide_k.mT / HEAD_DIM**0.5 + bias.double()
    later = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
    return (scores.masked_fill(later, -torch.inf) if causal else scores).softmax(-1) @ wide_v


def error(found: Tensor, right: Tensor) -> float:
    found, right = found.detach().double(), right.detach().double()
    return float((found - right).norm() / right.norm())


def gradients(y: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    g = torch.randn(y.shape, generator=torch.Generator().manual_seed(2))
    return list(torch.autograd.grad(y, inputs, g.to(y.dtype)))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 6e-7), (torch.bfloat16, 8e-3)])
@pytest.mark.parametrize(("heads", "key_heads"), [(8, 8), (12, 12), (12, 4), (1, 1)])
def test_folded_attention_is_attention_with_alibi(heads, key_heads, dtype, tolerance):
    q, k, v = vectors(heads, key_heads, dtype=dtype)
    assert folds(q, k, v)
    y = fold_attention(q, k, v, tuple(slopes(heads)), HEAD_DIM**-0.5)
    right = exact(q, k, v, ww.ALiBi(heads)(ww.positions(TOKENS)), causal=True)
    assert error(y, right) < tolerance
    for found, wanted in zip(gradients(y, [q, k, v]), gradients(right, [q, k, v]), strict=True):
        assert error(found, wanted) < 2 * tolerance


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_folding_is_exact_at_the_longest_length_that_it_takes(dtype):
    """The last query's bias reaches 4,096 while neighbors differ by 1/2: what rounds would show here."""
    tokens = 8192
    q, k, v = (x[:1].detach() for x in vectors(1, tokens=tokens, dtype=dtype))
    y = fold_attention(q, k, v, (0.5,), HEAD_DIM**-0.5)[:, :, -8:]
    distance = torch.arange(tokens - 8, tokens)[:, None] - torch.arange(tokens)
    scores = q[:, :, -8:].double() @ k.double().mT / 4 - 0.5 * distance
    right = scores.masked_fill(distance < 0, -torch.inf).softmax(-1) @ v.double()
    assert error(y, right) < (6e-7 if dtype == torch.float32 else 8e-3)


def test_too_many_tokens_are_not_folded():
    q = torch.empty(1, 1, 8193, HEAD_DIM)
    assert not folds(q, q, q)
    assert not folds(q.half(), q.half(), q.half())
    assert not folds(q.to("meta"), q.to("meta"), q.to("meta"))


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-14), (torch.bfloat16, 2e-2)]
)
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("key_heads", [4, 2])
@pytest.mark.parametrize("tokens", [1, 5, 300])
def test_toeplitz_attention_with_its_gradients(tokens, key_heads, causal, dtype, tolerance):
    q, k, v = vectors(4, key_heads, tokens, dtype)
    wide = torch.promote_types(dtype, torch.float32)
    line = torch.randn(4, 2 * tokens - 1, generator=torch.Generator().manual_seed(3), dtype=wide).requires_grad_()
    assert views(q, k, v)
    y = toeplitz_attention(q, k, v, line, causal, HEAD_DIM**-0.5)
    places = torch.arange(tokens)
    right = exact(q, k, v, line[:, places[:, None] - places + tokens - 1], causal)
    assert error(y, right) < tolerance
    wanted = gradients(right, [q, k, v, line])
    scale = max(float(g.double().norm()) for g in wanted)
    for one, other in zip(gradients(y, [q, k, v, line]), wanted, strict=True):
        assert (one.double() - other.double()).norm() < 2 * tolerance * scale


def test_a_fixed_line_needs_no_gradient():
    q, k, v = vectors(2)
    line = torch.randn(2, 2 * TOKENS - 1)
    places = torch.arange(TOKENS)
    right = exact(q, k, v, line[:, places[:, None] - places + TOKENS - 1], causal=True)
    y = toeplitz_attention(q, k, v, line, True, HEAD_DIM**-0.5)
    assert error(y, right) < 1e-6
    for found, wanted in zip(gradients(y, [q, k, v]), gradients(right, [q, k, v]), strict=True):
        assert error(found, wanted) < 2e-6


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("p", [ww.positions(TOKENS), ww.positions(TOKENS, start=1_000_000)], ids=["0", "1,000,000"])
@pytest.mark.parametrize("scheme", [ww.ALiBi, Bumps])
def test_engines_agree_beyond_a_few_tokens(scheme, p, causal):
    q, k, v = vectors(4, 2)
    where = ww.Where(score=scheme(4))
    leaves = [q, k, v, *where.parameters()]
    fast, plain = (where.at(p).attention(q, k, v, causal=causal, engine=engine) for engine in ("sdpa", "dense"))
    torch.testing.assert_close(fast, plain, rtol=0, atol=1e-5)
    for found, wanted in zip(gradients(fast, leaves), gradients(plain, leaves), strict=True):
        assert error(found, wanted) < 5e-6


@pytest.mark.parametrize("scheme", [ww.ALiBi, Bumps])
def test_no_table_is_held(scheme, monkeypatch):
    """Nothing of the size of tokens x tokens, forward and backward."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    tokens = 2048
    q, k, v = (x[:1] for x in vectors(2, tokens=tokens))
    where = ww.Where(score=scheme(2))
    with Largest() as held:
        y = where.at(ww.positions(tokens)).attention(q, k, v)
        gradients(y, [q, k, v, *where.parameters()])
    assert 0 < held.numbers < 2 * tokens * tokens / 3
    with Largest() as plain:
        where.at(ww.positions(tokens)).attention(q, k, v, engine="dense")
    assert plain.numbers >= 2 * tokens * tokens


def test_autocast_does_not_round_the_folded_columns():
    q, k, v = vectors(4)
    where = ww.Where(score=ww.ALiBi(4))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = where.at(ww.positions(TOKENS)).attention(q, k, v)
        low = where.at(ww.positions(TOKENS)).attention(*(x.bfloat16() for x in (q, k, v)))
    right = exact(q, k, v, ww.ALiBi(4)(ww.positions(TOKENS)), causal=True)
    assert error(y, right) < 2e-2
    assert error(low, right) < 2e-2
