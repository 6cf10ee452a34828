"""The third tutorial: the token table and four ways to encode positions: learned, sinusoidal, rotary and ALiBi."""

from collections.abc import Callable, Sequence
from math import cos, sin, sqrt

import torch
from jaxtyping import Float64, Int64
from torch import Tensor
from torch.nn import functional as F

from experiments.tutorials.claim import Claim, Measured, measured_claims
from experiments.tutorials.tutorial_1_tokens import largest_difference
from whatwhere.analysis.position_similarity import similarity
from whatwhere.comparison.model import Block
from whatwhere.errors import PositionError, ShapeError
from whatwhere.initialization import seeded
from whatwhere.models.parameter_count import parameters
from whatwhere.position.positions import positions
from whatwhere.what.embedding import TokenEmbedding
from whatwhere.where.binding import Where
from whatwhere.where.catalogue import catalogue, scheme
from whatwhere.where.frequencies import inverse_frequencies, sinusoid
from whatwhere.where.input.learned import Learned
from whatwhere.where.input.sinusoidal import Sinusoidal
from whatwhere.where.input_layer import InputLayer
from whatwhere.where.query_key.rotary import Rotary
from whatwhere.where.score.alibi import ALiBi

HEADS, TOKENS, HEAD_DIM = 8, 12, 16
INTO_HALVES = torch.cat([torch.arange(0, HEAD_DIM, 2), torch.arange(1, HEAD_DIM, 2)])
"""The permutation 0, 2, ..., 1, 3, ... that makes interleaved pairs the pairs (i, i + d/2)."""

Heads = Float64[Tensor, "1 heads tokens head_dim"]


def _queries_keys_values() -> tuple[Heads, Heads, Heads]:
    generator = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 1, HEADS, TOKENS, HEAD_DIM, generator=generator, dtype=torch.float64).unbind(0)
    return q, k, v


def _is_refused(call: Callable[[], object], error: type[Exception]) -> bool:
    try:
        call()
    except error:
        return True
    return False


def _learned_table() -> Sequence[Measured]:
    with seeded(0):
        layer = InputLayer(100, 8, learned := Learned(8, max_length=6))
    ids = torch.tensor([[7, 7, 99, 0, 7]])
    expected = torch.stack([layer.tokens.weight[t] + learned.weight[p] for p, t in enumerate(ids[0])])
    return (
        Measured("sums equal W[id] + P[position]", torch.equal(layer(ids)[0], expected), True),
        Measured("shape of P for T_max = 6", str(tuple(learned.weight.shape)), "(6, 8)"),
        Measured("position 5 has the last row", torch.equal(learned(torch.tensor([5]))[0, 0], learned.weight[5]), True),
        Measured("position 6 is refused", _is_refused(lambda: learned(torch.tensor([6])), PositionError), True),
    )


def _dimensions() -> Sequence[Measured]:
    g = torch.Generator().manual_seed(0)
    rows, after = torch.randn(50, 16, generator=g).double(), torch.randn(16, 32, generator=g).double()
    rotation = torch.linalg.qr(torch.randn(16, 16, generator=g).double()).Q
    one, other = TokenEmbedding.from_weight(rows), TokenEmbedding.from_weight(rows @ rotation)
    ids = torch.arange(50)
    output = largest_difference(other(ids) @ (rotation.T @ after), one(ids) @ after)
    cosines = [similarity(table.weight[:, None], table.weight) for table in (one, other)]
    return (
        Measured("a rotation of the table changes its numbers", bool((one(ids) - other(ids)).abs().mean() > 0.5), True),
        Measured("it changes the next layer, which undoes it", output > 1e-12, True),
        Measured(
            "largest change of a cosine of two rows",
            largest_difference(cosines[0], cosines[1]),
            expected=0.0,
            within=1e-12,
        ),
    )


def _sinusoid() -> Sequence[Measured]:
    def error(d: int) -> float:
        by_hand = [[f(p / 10_000 ** (2 * i / d)) for i in range(d // 2) for f in (sin, cos)] for p in range(40)]
        return largest_difference(Sinusoidal(d)(positions(40))[0], torch.tensor(by_hand))

    nearest = torch.pdist(Sinusoidal(64)(positions(512))[0]).min().item()
    return (
        *(Measured(f"d = {d}: largest difference to the formula", error(d), 0.0, 1e-6) for d in (2, 8, 64)),
        Measured("different frequencies in 64 features", len(set(inverse_frequencies(64).tolist())), 32),
        Measured("of 512 positions, the two closest are more than 1 apart", nearest > 1, True),
    )


def _relative_bias() -> Sequence[Measured]:
    def change(name: str) -> float:
        """Return by how much the output of a block moves where a text begins at position 100 instead of 0."""
        with seeded(0):
            where, ids = scheme(name, dim=32, num_heads=4, max_length=128), torch.randint(20, (1, 8))
            layer, block = InputLayer(20, 32, where.input, init=1.0), Block(32, 4, 64, causal=True)
        heres = [where.at(positions(8, start=start)) for start in (0, 100)]
        near, far = (block(layer(ids, here), here) for here in heres)
        return largest_difference(near, far)

    pe = sinusoid(torch.arange(200), 32).double()
    products = largest_difference(pe[:100] @ pe[:100].T, pe[100:] @ pe[100:].T)
    relative = [name for name in ("sinusoidal", "rotary", "alibi") if catalogue[name].relative]
    return (
        Measured("inner products of two positions depend on their distance alone", products < 1e-5, True),
        Measured("a block with sinusoids reads the same text 100 positions later", change("sinusoidal") < 0.01, True),
        Measured("change of its output, rotary", change("rotary"), expected=0.0, within=1e-5),
        Measured("change of its output, ALiBi", change("alibi"), expected=0.0, within=1e-5),
        Measured("relative by the catalogue", str(relative), expected="['rotary', 'alibi']"),
    )


def _its_rotation(x: Heads, index: Int64[Tensor, " tokens"]) -> Heads:
    """Compute its vector form: x * cos(m theta_i), each twice, plus (-x_1, x_0, -x_3, x_2, ...) * sin(m theta_i)."""
    d = x.shape[-1]
    theta = 10_000 ** (-2 * torch.arange(d // 2, dtype=torch.float64) / d)
    angle = (index[:, None] * theta).repeat_interleave(2, dim=-1)
    swapped = torch.stack([-x[..., 1::2], x[..., 0::2]], dim=-1).flatten(-2)
    return x * angle.cos() + swapped * angle.sin()


def _rotary_layouts() -> Sequence[Measured]:
    q, k, _ = _queries_keys_values()
    p = torch.arange(TOKENS) + 500
    paired_q, paired_k = Rotary(HEAD_DIM, interleaved=True)(q, k, p)
    mixed_q, mixed_k = Rotary(HEAD_DIM)(q, k, p)
    halved_q, halved_k = Rotary(HEAD_DIM)(q[..., INTO_HALVES], k[..., INTO_HALVES], p)
    scores = paired_q @ paired_k.mT
    return (
        Measured("queries: largest difference to its formula",
                 largest_difference(paired_q, _its_rotation(q, p)), 0.0, 1e-6),
        Measured("keys: largest difference", largest_difference(paired_k, _its_rotation(k, p)), 0.0, 1e-6),
        Measured("an odd d is refused", _is_refused(lambda: Rotary(5), ShapeError), True),
        Measured("queries in the layout of Llama, permuted: largest difference",
                 largest_difference(halved_q, paired_q[..., INTO_HALVES]), expected=0.0, within=1e-12),
        Measured("their scores: largest difference", largest_difference(halved_q @ halved_k.mT, scores),
                 expected=0.0, within=1e-12),
        Measured("norms in the layout of Llama, not permuted: largest difference",
                 largest_difference(mixed_q.norm(dim=-1), paired_q.norm(dim=-1)), expected=0.0, within=1e-6),
        Measured("their scores differ by more than 1",
                 largest_difference(mixed_q @ mixed_k.mT, scores) > 1, expected=True),
    )  # fmt: skip


def _score(rope: Rotary, q: Tensor, k: Tensor, m: int, n: int) -> float:
    """Return the inner product of a query at position m and a key at position n."""
    q_m, k_n = rope(q, k, torch.tensor([m]), key_positions=torch.tensor([n]))
    return float((q_m * k_n).sum())


def _rotation_between() -> Sequence[Measured]:
    q, k = (x[:, :1, :1] for x in _queries_keys_values()[:2])
    angle = 4 * inverse_frequencies(HEAD_DIM)

    def by_hand(sign: int) -> float:
        """Return q^T R k, with R rotating consecutive pairs by 4 theta_i, forwards or backwards."""
        a, b = q[0, 0, 0].unflatten(-1, (-1, 2)), k[0, 0, 0].unflatten(-1, (-1, 2))
        c, s = angle.cos(), sign * angle.sin()
        return float(((a * b).sum(-1) * c + (a[:, 1] * b[:, 0] - a[:, 0] * b[:, 1]) * s).sum())

    east, north = torch.tensor([1.0, 0.0]).view(1, 1, 1, 2), torch.tensor([0.0, 1.0]).view(1, 1, 1, 2)
    rope, plane = Rotary(HEAD_DIM, interleaved=True), Rotary(2)
    halves = Rotary(HEAD_DIM)
    return (
        Measured("q at 3, k at 7: score", _score(rope, q, k, 3, 7), by_hand(-1), 0.1, by_hand(1), 1e-5),
        Measured("q at 0, k at 4: score", _score(rope, q, k, 0, 4), expected=by_hand(1), within=1e-5),
        Measured("the same in the layout of Llama: difference of the two",
                 _score(halves, q, k, 3, 7) - _score(halves, q, k, 0, 4), expected=0.0, within=1e-5),
        Measured("with query and key exchanged there, the score is another",
                 abs(_score(halves, q, k, 3, 7) - _score(halves, q, k, 4, 0)) > 0.1, expected=True),
        Measured("q = (1, 0) at 0, k = (0, 1) at 1: score", _score(plane, east, north, 0, 1),
                 sin(1), 1e-3, -sin(1), 1e-6),
        Measured("q = (1, 0) at 1, k = (0, 1) at 0: score", _score(plane, east, north, 1, 0),
                 -sin(1), 1e-3, sin(1), 1e-6),
        Measured("q = k = (1, 0), at 0 and 1: score", _score(plane, east, east, 0, 1), expected=cos(1), within=1e-6),
        Measured("at 1 and 0: score", _score(plane, east, east, 1, 0), expected=cos(1), within=1e-6),
    )  # fmt: skip


def _what_rotary_changes() -> Sequence[Measured]:
    q, k, v = _queries_keys_values()
    where, p = scheme("rotary", dim=HEADS * HEAD_DIM, num_heads=HEADS, max_length=TOKENS), positions(TOKENS)
    here = where.at(p)
    rotated_q, rotated_k = here.query_key(q, k)
    attended = here.attention(rotated_q, rotated_k, v)
    plain = F.scaled_dot_product_attention(rotated_q, rotated_k, v, is_causal=True)
    change = (rotated_q @ rotated_k.mT - q @ k.mT)[0]
    step = where.at(p[-1:], p)
    last_q, last_k = step.query_key(q[:, :, -1:], k[:, :, -1:])
    decoded = step.attention(
        last_q, torch.cat([where.at(p[:-1]).query_key(q[:, :, :-1], k[:, :, :-1])[1], last_k], 2), v
    )
    return (
        Measured("it adds to the scores", where.score is not None, True),
        Measured("it is one number for a pair of positions, as a bias is", bool(change[:, 5, 0].std() < 1), True),
        Measured("scores are others than without it", bool(change.abs().max() > 1), True),
        Measured("door of the scheme", str(catalogue["rotary"].door), expected="query_key"),
        Measured("plain attention of the rotated q and k: largest difference", largest_difference(attended, plain),
                 expected=0.0, within=1e-12),
        Measured("norms of queries: largest change", largest_difference(rotated_q.norm(dim=-1), q.norm(dim=-1)),
                 expected=0.0, within=1e-6),
        Measured("scores at distance 0: largest change", float(change.diagonal(dim1=-2, dim2=-1).abs().max()),
                 expected=0.0, within=1e-5),
        Measured("scores at distance 5 fall by more than 1 in a head and rise by more than 1 in another",
                 bool(change[:, 5, 0].min() < -1 and change[:, 5, 0].max() > 1), expected=True),
        Measured("attention to cached rotated keys: largest difference",
                 largest_difference(decoded, attended[:, :, -1:]),
                 expected=0.0, within=1e-12),
    )  # fmt: skip


def _alibi() -> Sequence[Measured]:
    q, k, _ = _queries_keys_values()
    ones = torch.eye(TOKENS, dtype=torch.float64).expand(1, HEADS, -1, -1)  # attention returns its weights
    alibi = ALiBi(HEADS)
    here = Where(score=alibi).at(positions(TOKENS))
    weights = here.attention(q, k, ones, engine="dense")[0]
    where = scheme("alibi", dim=64, num_heads=8, max_length=16)

    def error(formula: Callable[[Tensor, Tensor], Tensor], i: int) -> float:
        """Return the largest difference of query i's weights to a formula of scores and bias, over the first i keys."""
        bias = alibi.slopes.double()[:, None] * torch.arange(-(i - 1), 1)
        scores = (k[0, :, :i] @ q[0, :, i - 1, :, None])[..., 0]
        return largest_difference(weights[:, i - 1, :i], formula(scores, bias).softmax(-1))

    def scaled(scores: Tensor, bias: Tensor) -> Tensor:
        return scores / sqrt(HEAD_DIM) + bias

    return (
        Measured("learned numbers", parameters(where).total, 0),
        Measured("positional vectors are added, or rotate q and k", (where.input, where.query_key) != (None, None),
                 False),
        *(
            Measured(f"weights of query {i}: largest difference to softmax(q K^T / sqrt(d) + m [...])",
                     error(scaled, i), 0.0, 1e-6)
            for i in (1, 5, TOKENS)
        ),
        Measured("weights of later keys", float(weights.triu(1).max()), 0.0),
        Measured("sdpa: largest difference", largest_difference(here.attention(q, k, ones, engine="sdpa")[0], weights),
                 expected=0.0, within=1e-6),
        Measured("without the division by sqrt(d), which it omits, weights differ by more than 0.01",
                 error(torch.add, TOKENS) > 0.01, expected=True),
        Measured("with the bias divided too, they differ by more than 0.01",
                 error(lambda scores, bias: (scores + bias) / sqrt(HEAD_DIM), TOKENS) > 0.01, expected=True),
    )  # fmt: skip


def _slopes(heads: int) -> Float64[Tensor, " heads"]:
    return ALiBi(heads).slopes.double()


def _slope_rule() -> Sequence[Measured]:
    def error(heads: int) -> float:
        """Return the largest relative difference to slopes that start at 2^(-8/n) and fall by that ratio."""
        rule = torch.tensor([(2 ** (-8 / heads)) ** h for h in range(1, heads + 1)], dtype=torch.float64)
        return largest_difference(_slopes(heads).sort(descending=True).values / rule, torch.ones_like(rule))

    of_12 = torch.tensor([2**-h for h in range(1, 9)] + [2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5], dtype=torch.float64)
    eighths = torch.tensor([1 / 2**h for h in range(1, 9)], dtype=torch.float64)
    return (
        *(Measured(f"{n} heads: largest relative difference", error(n), 0.0, 1e-6) for n in (1, 2, 4, 8, 16, 32)),
        Measured("slopes of 8 heads that are 1/2^1 to 1/2^8", int((_slopes(8) == eighths).sum()), 8),
        Measured("12 heads: largest relative difference", error(12), 0.0, 0.05),
        Measured("12 heads: to the slopes of 8 heads and every other one of 16",
                 largest_difference(_slopes(12) / of_12, torch.ones_like(of_12)), expected=0.0, within=1e-6),
        Measured("last slopes of 1 to 32 heads", str({_slopes(n)[-1].item() for n in (1, 2, 4, 8, 16, 32)}),
                 expected="{0.00390625}"),
    )  # fmt: skip


def _slopes_of_16() -> Sequence[Measured]:
    slopes, last = _slopes(16), ALiBi(8)(positions(TOKENS))[0, :, -1].double()
    printed = torch.tensor([2.0**-h for h in range(1, 17)], dtype=torch.float64)
    distances = torch.arange(TOKENS - 1, -1, -1, dtype=torch.float64)
    of_8 = torch.tensor([[-(2.0**-k) * distance for distance in distances] for k in range(1, 9)], dtype=torch.float64)
    return (
        Measured("slope of head 16", slopes[-1].item(), 2**-16, 1e-6, 2**-8, 1e-9),
        Measured("slope of head 1", slopes[0].item(), 1 / 2, 1e-6, 2**-0.5, 1e-6),
        Measured("heads whose slope is more than 1.4 times the printed one", int((slopes > 1.4 * printed).sum()),
                 expected=16),
        Measured("head 1 of 8: bias of the key one position before", last[0, -2].item(), 0.5, 1e-6, -0.5, 1e-9),
        Measured("8 heads: largest difference to -distance / 2^k",
                 largest_difference(last, of_8), expected=0.0, within=1e-6),
        Measured("the nearer the key, the greater the bias", bool((last.diff() > 0).all()), expected=True),
    )  # fmt: skip


CLAIMS: tuple[Claim, ...] = measured_claims(
    {
        "2.1": _learned_table,
        "2.2": _dimensions,
        "2.3": _sinusoid,
        "2.4": _relative_bias,
        "2.5": _rotary_layouts,
        "2.6": _rotation_between,
        "2.7": _what_rotary_changes,
        "2.9": _alibi,
        "2.10": _slope_rule,
        "2.11": _slopes_of_16,
    }
)
