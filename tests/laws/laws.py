"""The laws as functions: each raises AssertionError where its law does not hold.

The test files apply them to every case; test_teeth.py applies them to schemes that are broken on purpose. What laws 8
to 11 and 14 measure is whatwhere.testing's, where it serves other people's implementations too.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter
from torch.autograd import gradcheck
from torch.func import functional_call
from torch.testing import assert_close

import whatwhere as ww
from whatwhere.testing import harness as shared

from .cases import DIM, HEADS
from .model import HEAD_DIM, Model, attend, decode, decode_forgetting, draw, numbers, random_ids

Build = Callable[[], ww.Where]
TOLERANCE = {"rtol": 0.0, "atol": 1e-5}
"""Of the small model's vectors, which are of size 1 to 4, computed in float32 in another order."""


def require_equal(actual: list[Tensor], expected: list[Tensor]) -> None:
    """Every bit alike."""
    assert_close(actual, expected, rtol=0, atol=0)


def real_tokens(p: ww.Positions, batch: int) -> Tensor:
    """True at tokens, False at padding."""
    real = torch.ones_like(p.order, dtype=torch.bool) if p.segment is None else p.segment >= 0
    return real.expand(batch, -1)


def draw_anew(module: nn.Module, seed: int) -> None:
    """Every module draws the parameters that it owns: the protocol of sharded training."""
    torch.manual_seed(seed)
    for part in module.modules():
        if next(part.parameters(recurse=False), None) is not None:
            part.reset_parameters()


def unchanged_by_bfloat16(where: ww.Where, p: ww.Positions) -> None:
    """Law 1: a conversion of the model to bfloat16 rounds nothing of a fixed scheme."""
    expected = numbers(where, p)
    require_equal(numbers(where.bfloat16(), p), expected)


def unchanged_by_autocast(where: ww.Where, p: ww.Positions) -> None:
    """Law 1: autocast reaches no angle and no bias."""
    expected = numbers(where, p)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = numbers(where, p)
    require_equal(inside, expected)


def unchanged_by_callers(build: Build, p: ww.Positions, longest: int = 1_000_000) -> None:
    """Law 1: what was asked before, at other lengths, dtypes and in other modes, leaves no trace."""
    fresh, used = build(), build()
    used.load_state_dict(fresh.state_dict())
    expected = [*numbers(fresh, p), attend(fresh, p)]
    few = ww.positions(3)
    numbers(used, few)
    if not fresh.state_dict():
        attend(used, few, dtype=torch.bfloat16)
        numbers(used, ww.positions(5, start=min(100_000, longest - 5)))
        used.at(few.to("meta")).input(torch.empty(1, 3, DIM, device="meta"))
    with torch.inference_mode():
        attend(used, ww.Positions.packed([4, 5]))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        attend(used, ww.positions(40, start=7))
    require_equal([*numbers(used, p), attend(used, p)], expected)


def compiles_at_most_twice(run: Callable[[int], tuple], module: nn.Module, lengths: tuple[int, ...]) -> None:
    """Law 1: fullgraph compile equals eager, and two graphs serve any number of lengths."""
    counter = CompileCounter()
    compiled = torch.compile(module, fullgraph=True, backend=counter)
    for n in lengths:
        assert_close(compiled(*run(n)), module(*run(n)), **TOLERANCE)
    assert 1 <= counter.frame_count <= 2, f"{counter.frame_count} graphs for {len(lengths)} lengths"


def decoding_equals_prefill(model: Model, p: ww.Positions, first: int) -> None:
    """Law 2: one token at a time with a cache gives what reading all at once gives."""
    ids = random_ids(max(p.batch, 2), p.tokens)
    real = real_tokens(p, len(ids))
    with torch.no_grad():
        assert_close(decode(model, ids, p, first)[real], model(ids, p)[real], **TOLERANCE)


def decoding_with_forgetting_equals_prefill(model: Model, p: ww.Positions, first: int, most: int) -> None:
    """Law 2: a cache that forgets what no later query can see gives what reading all at once gives."""
    ids = random_ids(max(p.batch, 2), p.tokens)
    real = real_tokens(p, len(ids))
    with torch.no_grad():
        decoded, keys = decode_forgetting(model, ids, p, first)
        assert_close(decoded[real], model(ids, p)[real], **TOLERANCE)
    assert keys <= most, f"{keys} keys are kept, but no more than {most} are needed"


def packed_equals_separate(model: Model, lengths: tuple[int, ...]) -> None:
    """Law 3: documents in one sequence do not feel each other."""
    ids = random_ids(2, sum(lengths))
    with torch.no_grad():
        together = model(ids, ww.Positions.packed(lengths))
        apart = [model(part, ww.positions(part.shape[1])) for part in ids.split(lengths, dim=1)]
        assert_close(together, torch.cat(apart, dim=1), **TOLERANCE)


def padded_equals_unpadded(model: Model, mask: Tensor) -> None:
    """Law 3: padding, wherever it stands, changes no real token, and makes nothing NaN."""
    ids, p = random_ids(*mask.shape), ww.Positions.from_mask(mask)
    y = model(ids, p)
    assert y.isfinite().all(), "padding makes numbers that are not finite"
    for row, real in enumerate(mask):
        alone = model(ids[row, real][None], ww.positions(int(real.sum())))
        assert_close(y[row, real], alone[0], **TOLERANCE)
    y[mask].sum().backward()
    slopes = [weight.grad for weight in model.parameters() if weight.grad is not None]
    assert slopes, "no gradient reached a weight"
    assert all(slope.isfinite().all() for slope in slopes), "padding makes gradients that are not finite"


def materialized_equals_built(build: Build, p: ww.Positions) -> None:
    """Law 4: built on the meta device and materialized, it is what it would have been."""
    torch.manual_seed(5)
    direct = build()
    with torch.device("meta"):
        late = build()
    late.to_empty(device="cpu")
    draw_anew(late, seed=5)
    assert_close(dict(late.state_dict()), dict(direct.state_dict()), rtol=0, atol=0)
    require_equal([*numbers(late, p), attend(late, p)], [*numbers(direct, p), attend(direct, p)])


def tell_apart(wheres: list[ww.Where], *positions: ww.Positions, regime_length: int | None = None) -> None:
    """Law 5: no two of these give the same attention, on all of these positions."""
    for where in wheres:  # parameters alike, so that only the settings can differ
        draw_anew(where, seed=6)
    results = [torch.cat([attend(where, p, regime_length=regime_length) for p in positions], dim=2) for where in wheres]
    for n, one in enumerate(results):
        for m, other in enumerate(results[:n]):
            assert (one - other).abs().max() > 1e-4, f"settings {m} and {n} give the same numbers"


def state_is_as_declared(where: ww.Where, learned: bool) -> None:
    """Law 6: a learned scheme trains all that it saves, a fixed one owns nothing that a conversion could round."""
    trained = {name for name, weight in where.named_parameters() if weight.requires_grad}
    assert bool(trained) == learned, f"declared {learned=}, but trains {trained or 'nothing'}"
    assert set(where.state_dict()) == trained, "saves other tensors than it trains"
    assert not list(where.buffers()), "a buffer is state, persistent or not"


class OneLayer(nn.Module):
    """Attention as a function of token vectors and positions, without weights of its own."""

    def __init__(self, where: ww.Where) -> None:
        super().__init__()
        self.where = where

    def forward(self, x: Tensor, p: ww.Positions) -> Tensor:
        here = self.where.at(p)
        heads = here.input(x).unflatten(-1, (2, -1)).transpose(1, 2)
        content = {"increments": here.increments(x), "gates": here.gates(x)}
        return here(heads, heads[:, :1].flip(-1), heads[:, 1:], **content)


def gradients_are_right(where: ww.Where, p: ww.Positions, dim: int) -> None:
    """Law 7: the gradients of token vectors and of all parameters are those of finite differences."""
    layer = OneLayer(where.double())
    weights = dict(layer.named_parameters())

    def run(x: Tensor, *values: Tensor) -> Tensor:
        return functional_call(layer, dict(zip(weights, values, strict=True)), (x, p))

    x = draw(1, p.tokens, dim, seed=3, dtype=torch.float64).requires_grad_()
    right = gradcheck(run, (x, *weights.values()), fast_mode=True, raise_exception=False)
    assert right, "gradients differ from finite differences"


def permuting_positions_permutes_rows(encoding: ww.InputEncoding, index: Tensor, apart: float = 0.0) -> None:
    """Law 8: a row depends on its own position only.

    Rows that are products of matrices may be `apart` by rounding: some processors sum the last rows in another order.
    """
    order = torch.randperm(index.numel(), generator=torch.Generator().manual_seed(0))
    moved = shared.permutation_error(lambda positions: encoding(positions)[0], index, order)
    assert (moved <= apart).all(), f"rows are not equal: {moved.max():.1e} apart"


def inner_product_is_of_distance(encoding: ww.InputEncoding, distance: int, starts: list[int]) -> None:
    """Law 9: <PE(p), PE(p - distance)> is the same wherever p is.

    It is a sum of dim/2 cosines, made of dim products of two float32 numbers of at most 1, each rounded by 2**-25 at
    most: an error of dim * 2**-24.
    """
    apart = shared.inner_product_error(lambda positions: encoding(positions)[0], distance, starts)
    assert (apart <= encoding.dim * 2**-23).all(), f"products are not equal: {apart.max():.1e} apart"


def logits(query_key: ww.QueryKeyMap, p: ww.Positions, regime_length: int | None = None) -> Tensor:
    """<q_i, k_j> of fixed vectors, summed in float64."""
    q, k = mapped(query_key, p, regime_length)
    return q @ k.repeat(1, q.shape[1] // k.shape[1], 1, 1).mT  # keys that are mapped alike for several regions


def mapped(query_key: ww.QueryKeyMap, p: ww.Positions, regime_length: int | None = None) -> list[Tensor]:
    """What becomes of fixed queries and keys, in float64."""
    q, k = (draw(1, HEADS, p.tokens, HEAD_DIM, seed=n).double() for n in (0, 1))
    return [x.double().detach() for x in query_key(q, k, p, regime_length=regime_length)]


def logits_unmoved(
    query_key: ww.QueryKeyMap, p: ww.Positions, moved: ww.Positions, regime_length: int | None = None
) -> None:
    """Law 10: moving all positions alike, along one axis or all, moves no logit.

    Cosine and sine are rounded to float32, by 2**-25 each. Lengths are those after the map.
    """
    apart = shared.logit_error(*(mapped(query_key, positions, regime_length) for positions in (p, moved)))
    assert (apart <= shared.logit_tolerance(2**-25)).all(), f"moved by {apart.max():.1e} of |q| |k|"


def norms_kept(query_key: ww.QueryKeyMap, p: ww.Positions, regime_length: int | None = None) -> None:
    """Law 11: a map of queries and keys changes no length, but by the magnitude that it states."""
    q, k = (draw(1, 2, p.tokens, HEAD_DIM, seed=n) for n in (0, 1))
    stated = getattr(query_key, "magnitude", 1.0)
    for before, after in zip((q, k), query_key(q, k, p, regime_length=regime_length), strict=True):
        changed = shared.norm_error(before, after, stated)
        assert (changed <= 1e-6).all(), f"lengths are not equal: {changed.max():.1e} apart"


def engines_agree(model: Model, p: ww.Positions, engine: str) -> None:
    """Law 12: an engine gives the numbers of the plain formula."""
    ids, real = random_ids(2, p.tokens), real_tokens(p, batch=2)
    with torch.no_grad():
        assert_close(model(ids, p, engine=engine)[real], model(ids, p, engine="dense")[real], **TOLERANCE)


def engines_agree_on_an_encoder(where: ww.Where, p: ww.Positions, engine: str) -> None:
    """Law 12, where every token may look at every other."""
    real = real_tokens(p, batch=2)
    with torch.no_grad():
        actual, dense = (attend(where, p, causal=False, engine=name).transpose(1, 2) for name in (engine, "dense"))
    assert_close(actual[real], dense[real], **TOLERANCE)


def relative_iff_declared(
    where: ww.Where, relative: bool, n: int, shift: int, regime_length: int | None = None
) -> None:
    """Law 13: a relative scheme sees distances only, another one also where it stands."""
    there, here = (attend(where, ww.positions(n, start=start), regime_length=regime_length) for start in (shift, 0))
    moved = (there - here).abs().max()
    if relative:
        assert moved < 1e-5, f"declared relative, but a shift by {shift} moves the output by {moved:.1e}"
    else:
        assert moved > 1e-3, f"not declared relative, but a shift by {shift} moves the output by {moved:.1e} only"


def finite_at(score: ww.ScoreBias, longest: int, dtype: torch.dtype) -> None:
    """Law 14: no bias overflows at the longest distance."""
    table = score(ww.positions(1, start=longest - 1), keys=ww.positions(2), causal=score.causal_only, dtype=dtype)
    assert table.dtype == dtype
    assert table.isfinite().all(), f"not finite in {dtype} at distance {longest - 1}"


def distinct_over(score: ww.ScoreBias, near: int, dtype: torch.dtype) -> None:
    """Law 14: every head tells all near distances apart."""
    table = score(ww.positions(1, start=near), keys=ww.positions(near + 1), dtype=dtype)
    for head, same in enumerate(shared.repeated(table[0, :, 0])):
        assert not same.any(), f"head {head} of {score.num_heads} merges distances in {dtype}"
