"""Attention: three engines, one formula, over every kind of positions and with keys of every origin."""

from contextlib import nullcontext
from itertools import product
from math import exp, sqrt

import pytest
import torch
from torch.autograd import forward_ad
from torch.nn import functional as F

import whatwhere as ww
from whatwhere.errors import SettingError
from whatwhere.where import attention as module
from whatwhere.where.attention import attention

# FlexAttention compiles what it is given, also on the CPU.
ENGINES = ["dense", "sdpa", "auto", pytest.param("flex", marks=pytest.mark.compile)]
WHERES = {
    "none": lambda heads: ww.Where(),
    "rotary": lambda heads: ww.Where(query_key=ww.Rotary(8)),
    "alibi": lambda heads: ww.Where(score=ww.ALiBi(heads)),
    "rotary+alibi": lambda heads: ww.Where(query_key=ww.Rotary(8), score=ww.ALiBi(heads)),
}
FLEX = [pytest.param(name, "flex", marks=pytest.mark.compile) for name in ("none", "rotary+alibi")]
EACH = pytest.mark.parametrize(("name", "engine"), [*product(WHERES, ENGINES[:3]), *FLEX])
POSITIONS = {
    "plain": lambda: ww.positions(6),
    "packed": lambda: ww.Positions.packed([2, 3, 1]),
    "left padding": lambda: ww.Positions.from_mask(torch.tensor([[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]])),
    "right padding": lambda: ww.Positions.from_mask(torch.tensor([[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 0]])),
    "randomized": lambda: ww.Positions.randomized(6, 50, batch=2, generator=torch.Generator().manual_seed(0)),
    "a start each": lambda: ww.positions(6, start=torch.tensor([0, 11])),
}


def draw(*shapes, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes]


def by_loops(q, k, v, mask, bias=None, scale=None):
    """The formula, one query at a time, in Python's own numbers."""
    batch, heads, queries, head_dim = q.shape
    shared = heads // k.shape[1]
    scale = 1 / sqrt(head_dim) if scale is None else scale
    y = torch.zeros(batch, heads, queries, v.shape[-1], dtype=torch.float64)
    for b in range(batch):
        for h in range(heads):
            for i in range(queries):
                seen = [j for j in range(k.shape[2]) if mask[b % mask.shape[0], 0, i, j]]
                scores = [float(q[b, h, i].double() @ k[b, h // shared, j].double()) * scale for j in seen]
                if bias is not None:
                    scores = [s + float(bias[b % bias.shape[0], h, i, j]) for s, j in zip(scores, seen, strict=True)]
                weights = [exp(s - max(scores)) for s in scores]
                for weight, j in zip(weights, seen, strict=True):
                    y[b, h, i] += weight / sum(weights) * v[b, h // shared, j].double()
    return y


@pytest.mark.every_nth(5)
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("positions", POSITIONS)
@EACH
def test_every_engine_is_the_formula(name, positions, causal, engine):
    where, p, key_heads = WHERES[name](4), POSITIONS[positions](), {"plain": 4, "packed": 1}.get(positions, 2)
    q, k, v = draw((2, 4, 6, 8), (2, key_heads, 6, 8), (2, key_heads, 6, 8))
    here = where.at(p)
    q, k = here.query_key(q, k)
    y = here.attention(q, k, v, causal=causal, engine=engine)
    bias = None if where.score is None else where.score(p)
    assert torch.allclose(y.double(), by_loops(q, k, v, p.mask(causal=causal), bias), atol=1e-5)


@EACH
def test_a_further_mask_limits_what_is_seen(name, engine):
    where, p = WHERES[name](4), ww.positions(5)
    q, k, v = draw((2, 4, 5, 8), (2, 4, 5, 8), (2, 4, 5, 8))
    window = torch.ones(5, 5, dtype=torch.bool).triu(-1)[None, None]  # the key itself and the one before
    here = where.at(p)
    q, k = here.query_key(q, k)
    y = here.attention(q, k, v, mask=window, engine=engine)
    bias = None if where.score is None else where.score(p)
    assert torch.allclose(y.double(), by_loops(q, k, v, p.mask() & window, bias), atol=1e-5)


@EACH
def test_two_sequences_of_unequal_lengths(name, engine):
    where = WHERES[name](4)
    source = ww.Positions.from_mask(torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]))
    target = ww.positions(3)
    q, k, v = draw((2, 4, 3, 8), (2, 4, 5, 8), (2, 4, 5, 6))
    here = where.at(target, source)
    q, k = here.query_key(q, k)
    y = here.attention(q, k, v, causal=False, engine=engine)
    visible = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]).bool()[:, None, None].expand(2, 1, 3, 5)
    bias = None if where.score is None else where.score(target, source)
    assert torch.allclose(y.double(), by_loops(q, k, v, visible, bias), atol=1e-5)


@pytest.mark.parametrize("name", WHERES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("engine", ["dense", "sdpa"])
def test_a_query_without_keys_gets_zeros_and_a_clean_gradient(name, dtype, engine):
    p = ww.Positions.from_mask(torch.tensor([[0, 0, 1, 1], [1, 1, 1, 0]]))
    q, k, v = (x.requires_grad_() for x in draw((2, 4, 4, 8), (2, 2, 4, 8), (2, 2, 4, 8), dtype=dtype))
    here = WHERES[name](4).at(p)
    y = here.attention(*here.query_key(q, k), v, engine=engine)
    assert y.dtype == dtype
    assert bool((y[0, :, :2] == 0).all())
    assert bool((y[1, :, 3] == 0).all())
    y.float().sum().backward()
    assert all(bool(x.grad.isfinite().all()) for x in (q, k, v))
    assert bool((v.grad[0, :, :2] == 0).all())  # nobody looks at padding
    assert bool((v.grad[0, :, 2:] != 0).any(-1).all())


TRANSFORMED = {
    "none": lambda: None,
    "alibi": lambda: ww.ALiBi(4),
    "t5": lambda: ww.T5(4),
    "kerple": lambda: ww.KERPLE(4),
    "shaw": lambda: ww.Shaw(8, 4),
}


@pytest.mark.parametrize("tokens", [5, 24])
@pytest.mark.parametrize("positions", ["plain", "left padding"])
@pytest.mark.parametrize("name", TRANSFORMED)
def test_transforms_of_functions_work_with_the_engine_that_is_chosen(name, positions, tokens, monkeypatch):
    """Values, derivatives along a direction, and gradients of each sample, against plain tensors; 24 are long."""
    monkeypatch.setattr(module, "_MIN_BLOCKWISE", 20)
    torch.manual_seed(0)
    where = ww.Where(score=TRANSFORMED[name]())
    p = ww.positions(tokens) if positions == "plain" else ww.Positions.from_mask(torch.arange(tokens) > 2)
    q, t = draw((3, 1, 4, tokens, 8), (3, 1, 4, tokens, 8), dtype=torch.float64)
    k, v = draw((1, 2, tokens, 8), (1, 2, tokens, 8), seed=1, dtype=torch.float64)

    def attend(q, engine="auto"):
        return where.at(p).attention(q, k, v, engine=engine)

    def loss(q):
        return attend(q).square().sum()

    plain = [attend(one, "dense") for one in q]
    assert torch.allclose(torch.vmap(attend)(q), torch.stack(plain))
    whole = q.clone().requires_grad_()
    sum(attend(one, "dense").square().sum() for one in whole).backward()
    assert torch.allclose(torch.vmap(torch.func.grad(loss))(q), whole.grad)
    value, along = torch.func.jvp(loss, (q[0],), (t[0],))
    assert torch.allclose(value, plain[0].square().sum())
    assert torch.allclose(along, (whole.grad[0] * t[0]).sum())
    with forward_ad.dual_level():
        dual = forward_ad.unpack_dual(loss(forward_ad.make_dual(q[0], t[0])))
    assert torch.allclose(dual.tangent, along)


@pytest.mark.parametrize("tokens", [5, 600])
@pytest.mark.parametrize("scheme", [ww.Rotary(8), ww.ALiBi(2)], ids=["Rotary", "ALiBi"])
def test_a_second_derivative_that_no_kernel_has_is_an_error_with_the_way_out(scheme, tokens):
    x = draw((3, 1, 2, tokens, 8))[0].requires_grad_()
    for engine in ("dense", "auto"):
        y = ww.Where(scheme).at(tokens).attention(*x, engine=engine)
        (g,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        with nullcontext() if engine == "dense" else pytest.raises(SettingError, match="engine='dense'"):
            assert torch.autograd.grad(g.square().sum() + 0 * x.sum(), x)[0].norm() > 1


def steep_t5(heads, **how):
    """Return T5 buckets whose numbers spread by 10, which sixteen bits would round by 0.06."""
    scheme = ww.T5(heads, **how)
    with torch.no_grad():
        scheme.weight.copy_(10 * draw(tuple(scheme.weight.shape))[0])
    return scheme


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("positions", ["plain", "left padding", "packed"])
@pytest.mark.parametrize("engine", ["auto", "dense", "sdpa"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_bias_is_added_in_float32_to_scores_of_sixteen_bits(dtype, engine, positions, causal):
    where, p = ww.Where(score=steep_t5(4, bidirectional=not causal)), POSITIONS[positions]()
    q, k, v = draw((2, 4, 6, 8), (2, 2, 6, 8), (2, 2, 6, 8), dtype=dtype)
    bias = where.score(p, causal=causal).detach()
    wanted = by_loops(q, k, v, p.mask(causal=causal).expand(2, 1, 6, 6), bias, where.scale)
    with torch.no_grad():
        result = where.at(p).attention(q, k, v, causal=causal, engine=engine)
        with torch.autocast("cpu", dtype):
            mixed = where.at(p).attention(q.float(), k.float(), v.float(), causal=causal, engine=engine)
    for y in (result, mixed):
        assert torch.allclose(y.double(), wanted, atol=2 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("learning", [False, True])
def test_decoding_in_bfloat16_is_the_full_pass(learning):
    """One token at a time has a table, 600 at once have none: both see the same numbers."""
    where, p = ww.Where(score=steep_t5(4)), ww.positions(600)
    q, k, v = draw((1, 4, 600, 8), (1, 4, 600, 8), (1, 4, 600, 8), dtype=torch.bfloat16)
    with torch.set_grad_enabled(learning):
        whole = where.at(p).attention(q, k, v)
        steps = [where.at(p[t : t + 1], p[: t + 1]).attention(q[:, :, t : t + 1], k[:, :, : t + 1], v[:, :, : t + 1])
                 for t in range(540, 600)]  # fmt: skip
    assert torch.allclose(torch.cat(steps, 2).float(), whole[:, :, 540:].float(), atol=2 * torch.finfo(q.dtype).eps)


@pytest.mark.parametrize(
    ("queries", "keys", "causal", "used"),
    [
        (lambda p: p, lambda p: p, True, True),
        (lambda p: p, lambda p: p, False, False),
        (lambda p: p[4:], lambda p: p, True, False),
        (lambda p: p[2:], lambda p: p, True, False),
        (lambda p: p[4:], lambda p: p[:4].append(p[4:]), True, False),
        (lambda p: p, lambda p: ww.positions(5), True, False),
        (lambda p: ww.Positions.packed([2, 3]), lambda p: None, True, False),
        (lambda p: ww.Positions.from_mask(torch.tensor([0, 1, 1, 1, 1])), lambda p: None, True, False),
        (lambda p: ww.Positions.from_position_ids(torch.tensor([0, 2, 4, 6, 8])), lambda p: None, True, False),
    ],
    ids=["consecutive", "not causal", "step", "chunk", "grown cache", "two rulers", "packed", "padded", "gaps"],
)
def test_consecutive_positions_alone_use_the_causal_kernel(queries, keys, causal, used, monkeypatch):
    calls, p, real = [], ww.positions(5), F.scaled_dot_product_attention
    monkeypatch.setattr(
        module.F,
        "scaled_dot_product_attention",
        lambda *given, **how: calls.append(how.get("is_causal", False)) or real(*given, **how),
    )
    here = ww.Where().at(queries(p), keys(p))
    q, k = draw((1, 2, here.queries.tokens, 8), (1, 2, here.keys.tokens, 8))
    y = here.attention(q, k, k, causal=causal)
    assert calls == [used]
    assert torch.allclose(y.double(), by_loops(q, k, k, here.queries.mask(here.keys, causal)), atol=1e-5)


@pytest.mark.parametrize("engine", ["dense", "sdpa"])
def test_dropout_drops_weights_at_its_rate_and_keeps_the_mean(engine):
    torch.manual_seed(0)
    q = torch.zeros(1, 1, 400, 4)
    v = torch.eye(400)[None, None]  # the output is the matrix of weights itself: 1 / 400 before dropout
    here = ww.Where().at(ww.positions(400))
    weights = here.attention(q, q, v, causal=False, dropout=0.25, engine=engine)[0, 0] * 400
    assert torch.allclose(weights[weights != 0], torch.tensor(4 / 3), atol=1e-4)
    # 160,000 draws: the standard deviation of the share is 0.0011.
    assert abs(float((weights == 0).float().mean()) - 0.25) < 0.006


@pytest.mark.parametrize("sizes", [(0, 4), (1, 0), (0, 0)], ids=["no batch", "no tokens", "neither"])
@pytest.mark.parametrize("engine", ["auto", "dense", "sdpa", "flex"])
def test_nothing_attends_to_nothing_in_every_engine(engine, sizes):
    batch, tokens = sizes
    q = torch.zeros(batch, 2, tokens, 8)
    here = ww.Where(score=ww.ALiBi(2)).at(ww.positions(tokens))
    assert here.attention(q, q, q, engine=engine).shape == q.shape


@EACH
def test_queries_may_be_wider_than_their_cache(name, engine):
    where, p = WHERES[name](4), ww.positions(6)
    q, k, v = draw((2, 4, 6, 8), (2, 4, 6, 8), (2, 4, 6, 8))
    here, k, v = where.at(p), k.bfloat16(), v.bfloat16()
    q, k = here.query_key(q, k)
    with torch.no_grad():
        y = here.attention(q, k, v, engine=engine)
    assert y.dtype == torch.float32
    bias = None if where.score is None else where.score(p)
    assert torch.allclose(y.double(), by_loops(q, k.double(), v.double(), p.mask(), bias), atol=1e-5)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("sink", [False, True])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_soft_cap_is_its_formula(engine, sink, chunked, monkeypatch):
    """Before the bias and the mask, as in Gemma 2; also in chunks of queries."""
    if chunked:
        monkeypatch.setattr("whatwhere.where.attention._MAX_TABLE", 1)
        monkeypatch.setattr("whatwhere.where.attention._CHUNK", 64)
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, heads, 9, 8, generator=generator) * 3 for heads in (4, 2, 2))
    logit = torch.randn(4, generator=generator) if sink else None
    here = ww.Where(ww.ALiBi(4)).at(9)
    scores = here._cache.scores(here.where.score, None, q, k, True, None, None)
    with torch.no_grad():
        y = attention(q, k, v, scores, sink=logit, softcap=2.0, engine=engine)
    logits = 2 * torch.tanh(q.double() @ k.double().repeat_interleave(2, 1).mT / 8**0.5 / 2)
    logits += ww.ALiBi(4)(9, causal=True).double()
    if logit is not None:
        logits = torch.cat([logits, logit.double()[:, None, None].expand(2, 4, 9, 1)], dim=-1)
    weights = logits.softmax(-1)[..., :9]
    torch.testing.assert_close(y.double(), weights @ v.double().repeat_interleave(2, 1), rtol=0, atol=3e-6)
