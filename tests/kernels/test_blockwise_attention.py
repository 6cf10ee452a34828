"""Attention by blocks equals the formula, with its gradients, and allocates no table of tokens x tokens."""

from collections.abc import Callable

import jaxtyping
import pytest
import torch
from torch import Tensor, nn

import whatwhere as ww
from whatwhere.kernels import blockwise_attention as blocks
from whatwhere.kernels import toeplitz
from whatwhere.where import attention
from whatwhere.where.score_bias import DistanceBias

from ..attention import LargestTensor, queries_keys_values

TOKENS, HEAD_DIM = 300, 16
TOLERANCE = {torch.float64: 1e-14, torch.float32: 1e-6, torch.float16: 1.5e-3, torch.bfloat16: 1e-2}
"""Of results; of gradients three times that."""


@pytest.fixture(autouse=True)
def _at_any_length(monkeypatch):
    """Go by blocks for few tokens too."""
    torch.manual_seed(0)
    monkeypatch.setattr(attention, "_MIN_BLOCKWISE", 1)


class Bumps(DistanceBias):
    """A learned number for each head and distance modulo 7, and another at later keys."""

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        generator = torch.Generator().manual_seed(1)
        self.weight = nn.Parameter(torch.randn(num_heads, 14, generator=generator))

    def curve(self, device):
        return lambda head, distance: self.weight[head, torch.where(distance < 0, 7, 0) + distance % 7]


SCHEMES: dict[str, Callable[[int], ww.ScoreBias]] = {
    "ALiBi": ww.ALiBi,
    "T5": lambda heads: ww.T5(heads, scale=None, std=0.5),
    "KERPLE": ww.KERPLE,
    "Sandwich": lambda heads: ww.Sandwich(heads, sinusoid_dim=8),
    "Bumps": Bumps,
}
by_scheme = pytest.mark.parametrize("scheme", SCHEMES.values(), ids=SCHEMES)
looking_both_ways = pytest.mark.parametrize("scheme", [ww.ALiBi, Bumps])


@pytest.fixture
def calls(monkeypatch) -> list[int]:
    """Count how often attention goes by blocks."""
    seen: list[int] = []

    def watched(*args):
        seen.append(1)
        return blocks.attention_by_blocks(*args)

    monkeypatch.setattr(attention, "attention_by_blocks", watched)
    return seen


def vectors(heads: int, key_heads: int | None = None, tokens: int = TOKENS, dtype=torch.float32) -> list[Tensor]:
    return queries_keys_values(heads, key_heads or heads, tokens, HEAD_DIM, dtype)


def exact(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, causal: bool) -> Tensor:
    """Return the formula, in the precision of the inputs."""
    groups, tokens = q.shape[1] // k.shape[1], q.shape[2]
    k, v = (x.repeat_interleave(groups, dim=1) for x in (k, v))
    scores = q @ k.mT * q.shape[-1] ** -0.5 + bias
    later = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
    return (scores.masked_fill(later, -torch.inf) if causal else scores).softmax(-1) @ v


def error(result: Tensor, right: Tensor) -> float:
    result, right = result.detach().double(), right.detach().double()
    return float((result - right).norm() / right.norm())


def gradients(y: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    g = torch.randn(y.shape, generator=torch.Generator().manual_seed(2))
    return list(torch.autograd.grad(y, inputs, g.to(y.dtype)))


def assert_alike(fast: Tensor, right: Tensor, leaves: list[Tensor], exact_leaves: list[Tensor], tolerance: float):
    """Raise AssertionError unless values and gradients agree.

    One measure for all gradients: where a bias is the same for all keys, its own gradient is rounding alone.
    """
    assert error(fast, right) < tolerance
    result, wanted = gradients(fast, leaves), gradients(right, exact_leaves)
    measure = sum(float(one.double().norm()) for one in wanted) / len(wanted)
    for one, other in zip(result, wanted, strict=True):
        assert float((one.double() - other.double()).norm()) < 3 * tolerance * max(measure, float(other.norm()))


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize(("heads", "key_heads", "tokens"), [(4, 2, TOKENS), (3, 3, 193), (1, 1, 1), (2, 1, 2)])
@by_scheme
def test_attention_by_blocks_is_the_formula_in_float64(scheme, heads, key_heads, tokens, dtype, calls):
    """The bias has float32 parameters; the float64 copy has the same numbers."""
    q, k, v = vectors(heads, key_heads, tokens, dtype)
    bias = scheme(heads)
    p = ww.positions(tokens)
    y = ww.Where(score=bias).at(p).attention(q, k, v)
    assert y.dtype == dtype
    wide = scheme(heads).double()
    wide.load_state_dict(bias.state_dict())
    exact_inputs = [x.detach().double().requires_grad_() for x in (q, k, v)]
    right = exact(*exact_inputs, wide(p, causal=True), causal=True)
    tolerance = TOLERANCE[dtype] if dtype != torch.float64 else 1e-6  # KERPLE computes in its own dtype
    assert_alike(y, right, [q, k, v, *bias.parameters()], [*exact_inputs, *wide.parameters()], tolerance)
    assert calls


@pytest.mark.parametrize("causal", [True, False])
def test_float64_stays_float64(causal, calls):
    q, k, v = vectors(4, dtype=torch.float64)
    y = ww.Where(score=ww.ALiBi(4)).at(ww.positions(TOKENS)).attention(q, k, v, causal=causal)
    right = exact(q, k, v, ww.ALiBi(4)(ww.positions(TOKENS)).double(), causal)
    assert_alike(y, right, [q, k, v], [q, k, v], 1e-14)
    assert calls


@pytest.mark.parametrize("start", [0, 1_000_000])
@looking_both_ways
def test_bidirectional_attention_by_blocks(scheme, start, calls):
    q, k, v = vectors(4, 2)
    where = ww.Where(score=scheme(4))
    here = where.at(ww.positions(TOKENS, start=start))
    fast, dense = (here.attention(q, k, v, causal=False, engine=engine) for engine in ("sdpa", "dense"))
    leaves = [q, k, v, *where.parameters()]
    assert_alike(fast, dense, leaves, leaves, 2e-6)
    assert calls


@pytest.mark.parametrize(
    "p", [ww.Positions.randomized(TOKENS, max_length=5000), ww.positions(TOKENS, start=torch.tensor([0, 70]))]
)
@by_scheme
def test_random_positions_are_not_mistaken_for_consecutive_ones(scheme, p):
    """Their order is consecutive, their coordinates are not; and each sequence may begin elsewhere."""
    q, k, v = vectors(2)
    where = ww.Where(score=scheme(2))
    fast, dense = (where.at(p).attention(q, k, v, engine=engine) for engine in ("sdpa", "dense"))
    torch.testing.assert_close(fast, dense, rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("strength", [0.0, 1.0, 30.0])
def test_skipped_keys_do_not_matter(strength, dtype):
    """However large the scores are. The dense formula skips no key."""
    tokens = 1300
    q, k, v = (x.detach()[:1] for x in vectors(2, tokens=tokens))
    q, k, v = ((strength * x).to(dtype).requires_grad_() for x in (q, k, v))
    where = ww.Where(score=ww.ALiBi(2, slopes=[1.0, 0.1]))
    p = ww.positions(tokens)
    exact_inputs = [x.detach().double().requires_grad_() for x in (q, k, v)]
    right = where.at(p).attention(*exact_inputs, engine="dense")
    y = where.at(p).attention(q, k, v)
    if strength == 0:
        assert not y.any()
    else:
        # Large scores have large rounding errors: 2,000 in float32 is off by 1e-4, and so is its weight.
        assert_alike(y, right, [q, k, v], exact_inputs, TOLERANCE[dtype] * max(1, strength * strength / 10))


def test_a_far_key_with_a_high_score_is_not_skipped():
    """Its score is 400 above all others, its bias -300."""
    tokens, far = 1000, 300
    q, k, v = (torch.zeros(1, 1, tokens, HEAD_DIM) for _ in range(3))
    q[..., 0], k[:, :, tokens - 1 - far, 0], v[:, :, tokens - 1 - far] = 40.0, 40.0, 1.0
    y = ww.Where(score=ww.ALiBi(1, slopes=[1.0])).at(ww.positions(tokens)).attention(q, k, v)
    torch.testing.assert_close(y[0, 0, -1], torch.ones(HEAD_DIM))
    assert not y[0, 0, tokens - 2 - far].any()


@by_scheme
def test_no_table_is_allocated(scheme, monkeypatch):
    """No tensor has the size of tokens x tokens, forward and backward; with PyTorch alone one has."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    tokens = 2048
    q, k, v = (x[:1] for x in vectors(1, tokens=tokens))
    where = ww.Where(score=scheme(1))
    here, leaves = where.at(ww.positions(tokens)), [q, k, v, *where.parameters()]
    with LargestTensor() as by_blocks:
        gradients(here.attention(q, k, v), leaves)
    assert 0 < by_blocks.numbers < tokens * tokens / 8
    with LargestTensor() as dense, ww.pytorch_only(), torch.no_grad():
        here.attention(q, k, v)
    assert dense.numbers >= tokens * tokens


@by_scheme
def test_few_sequences_at_a_time_have_the_same_gradients(scheme, monkeypatch):
    q, k, v = vectors(4)
    where = ww.Where(score=scheme(4))
    leaves = [q, k, v, *where.parameters()]
    whole = gradients(where.at(ww.positions(TOKENS)).attention(q, k, v), leaves)
    monkeypatch.setattr(blocks, "_NUMBERS", 1)
    for one, other in zip(gradients(where.at(ww.positions(TOKENS)).attention(q, k, v), leaves), whole, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


CHANGED: dict[str, Callable[[Tensor], Tensor]] = {
    "features far apart": lambda x: x.mT.contiguous().mT,
    "a token's heads beside each other": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "narrower values": lambda x: x[..., :8],
    "wider values": lambda x: torch.cat([x, -x[..., :8]], -1),
}


@pytest.mark.parametrize("how", CHANGED)
@by_scheme
def test_any_strides_and_widths_of_values(scheme, how):
    given = [x.detach() for x in vectors(2)]
    changed = [CHANGED[how](x) if x is given[2] or "values" not in how else x for x in given]
    (q, k, v), where = (x.requires_grad_() for x in changed), ww.Where(score=scheme(2))
    here, leaves = where.at(ww.positions(TOKENS)), [q, k, v, *where.parameters()]
    fast = here.attention(q, k, v)
    assert fast.shape[-1] == v.shape[-1]
    assert_alike(fast, here.attention(q, k, v, engine="dense"), leaves, leaves, 2e-6)


@pytest.mark.parametrize("learned", ["q", "k", "v", "weight", "nothing"])
def test_only_what_requires_a_gradient_gets_one(learned):
    bias = Bumps(2).requires_grad_(learned == "weight")
    given = {name: x.detach().requires_grad_(name == learned) for name, x in zip("qkv", vectors(2), strict=True)}
    here = ww.Where(score=bias).at(ww.positions(TOKENS))
    y = here.attention(*given.values())
    assert y.requires_grad == (learned != "nothing")
    if learned != "nothing":
        leaf = bias.weight if learned == "weight" else given[learned]
        right = here.attention(*given.values(), engine="dense")
        assert error(gradients(y, [leaf])[0], gradients(right, [leaf])[0]) < 2e-6


@by_scheme
def test_gradients_of_several_upstream_ones_at_once(scheme, calls):
    x, where = torch.randn(3, 2, 4, TOKENS, HEAD_DIM, requires_grad=True), ww.Where(scheme(4), sink=ww.Sink(4))
    y, exact = (where.at(TOKENS).attention(*x, engine=engine) for engine in ("auto", "dense"))
    g, leaves = torch.randn(3, *y.shape), [x, *where.parameters()]
    right = torch.autograd.grad(exact, leaves, g, is_grads_batched=True)
    mapped = torch.func.vmap(lambda one: torch.autograd.grad(y, leaves, one, retain_graph=True))(g)
    for results in (torch.autograd.grad(y, leaves, g, is_grads_batched=True), mapped):
        assert all(error(*pair) < 1e-5 for pair in zip(results, right, strict=True))
    assert len(calls) == 1


def test_a_bias_is_not_rounded_to_bfloat16():
    """Values pick the weight of the first key. Results are rounded by 1/256; a bias would be by 1/32."""
    tokens, slope = 1000, 0.01
    q = torch.zeros(1, 1, tokens, HEAD_DIM, dtype=torch.bfloat16)
    v = q.clone()
    v[:, :, 0] = 1
    y = ww.Where(score=ww.ALiBi(1, slopes=[slope])).at(ww.positions(tokens)).attention(q, q, v)[0, 0, :, 0].double()
    faded = (-slope * torch.arange(tokens, dtype=torch.float64)).exp()
    torch.testing.assert_close(y, faded / faded.cumsum(0), rtol=2**-7, atol=0)


def test_autocast_rounds_products_but_no_bias():
    q, k, v = vectors(4)
    where = ww.Where(score=ww.ALiBi(4))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = where.at(ww.positions(TOKENS)).attention(q, k, v)
        low = where.at(ww.positions(TOKENS)).attention(*(x.bfloat16() for x in (q, k, v)))
    assert y.dtype == low.dtype == torch.bfloat16
    right = exact(q, k, v, ww.ALiBi(4)(ww.positions(TOKENS)), causal=True)
    assert error(low, right) < TOLERANCE[torch.bfloat16]
    assert_alike(y, right, [q, k, v], [q, k, v], TOLERANCE[torch.bfloat16])


def test_autocast_does_not_change_the_backward_pass():
    q, k, v = vectors(2)
    bias = Bumps(2)
    leaves = [q, k, v, bias.weight]
    y = ww.Where(score=bias).at(ww.positions(TOKENS)).attention(q, k, v)
    g = torch.randn_like(y)
    right = torch.autograd.grad(y, leaves, g, retain_graph=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = torch.autograd.grad(y, leaves, g)
    assert all(torch.equal(one, other) for one, other in zip(result, right, strict=True))


def attend_with_alibi(dropout: float = 0.0) -> Tensor:
    q, k, v = vectors(2)
    return ww.Where(score=ww.ALiBi(2)).at(ww.positions(TOKENS)).attention(q, k, v, dropout=dropout)


def test_what_blocks_do_not_support_takes_the_table(calls, monkeypatch):
    right = attend_with_alibi()
    assert len(calls) == 1
    attend_with_alibi(dropout=0.5)
    with ww.pytorch_only():
        torch.testing.assert_close(attend_with_alibi(), right, rtol=0, atol=1e-5)
    monkeypatch.setattr(toeplitz, "reads_views", lambda dtype: False)
    torch.testing.assert_close(attend_with_alibi(), right, rtol=0, atol=1e-5)
    monkeypatch.undo()  # of the length, too
    attend_with_alibi()
    assert len(calls) == 1


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_this_machine_reads_views_rightly(dtype):
    assert toeplitz.reads_views(dtype)


@pytest.mark.parametrize("fault", ["reads it as if it were not", "forgets it", "refuses"])
@pytest.mark.parametrize("kernel", ["_flash", "_flash_backward"])
def test_a_kernel_that_misreads_a_view_is_detected(kernel, fault, monkeypatch):
    real = getattr(blocks, kernel)

    def faulty(*args, attn_mask, scale):
        if fault == "refuses":
            raise RuntimeError("attn_mask must not overlap")
        numbers = attn_mask.storage_offset() + torch.arange(attn_mask.numel())
        memory = attn_mask.as_strided((attn_mask.untyped_storage().nbytes() // 4,), (1,), 0)
        misread = memory[numbers % len(memory)].view(attn_mask.shape).clamp(min=-1e4)
        return real(*args, attn_mask=misread if fault.startswith("reads") else 0 * misread, scale=scale)

    monkeypatch.setattr(blocks, kernel, faulty)
    assert not toeplitz.reads_views.__wrapped__(torch.float32)


@pytest.mark.compile
def test_a_compiled_program_takes_the_table(calls):
    q, k, v = vectors(2, tokens=64)
    where = ww.Where(score=ww.ALiBi(2))

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return where.at(ww.positions(64)).attention(q, k, v)

    y = torch.compile(attend, fullgraph=True, backend="eager")(q, k, v)
    assert not calls
    torch.testing.assert_close(y, attend(q, k, v), rtol=0, atol=1e-5)
    assert calls
