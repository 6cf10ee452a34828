"""The first tutorial, stage 2: what attention makes of order without positions, and sinusoids in 64 features."""

from collections.abc import Sequence
from math import acos, cos, degrees, pi, sin, sqrt

import torch
from torch import Tensor

from experiments.tutorials.claim import Claim, Measured, measured_claims
from experiments.tutorials.tutorial_1_tokens import EXAMPLE, largest_difference, token_table
from whatwhere.analysis import similarity
from whatwhere.comparison.model import Transformer
from whatwhere.comparison.settings import Settings
from whatwhere.comparison.tasks import Batch, Expressions
from whatwhere.errors import PositionError
from whatwhere.initialization import seeded
from whatwhere.position.positions import positions
from whatwhere.what.embedding import Init, TokenEmbedding
from whatwhere.what.expressions import expression_tokenizer
from whatwhere.where.binding import Where
from whatwhere.where.frequencies import inverse_frequencies, offset_map, wavelengths
from whatwhere.where.input.learned import Learned
from whatwhere.where.input.sinusoidal import Sinusoidal
from whatwhere.where.input_layer import InputLayer

TRAINED = 14
"""Tokens of the longest expression of the default training, with six arguments."""


def encoding(tokens: int, dim: int = 64, start: int = 0) -> Tensor:
    """Return PE of consecutive positions, in float64 from float32 values."""
    pe: Tensor = Sinusoidal(dim)(positions(tokens, start=start))[0].double()
    return pe


def _value(position: int, feature: int) -> float:
    return float(Sinusoidal(64)(torch.tensor([position]))[0, 0, feature])


def _distinct_positions() -> Sequence[Measured]:
    closest = float(torch.pdist(encoding(128)).min())
    neighbors = sqrt(2 * float((1 - inverse_frequencies(64).cos()).sum()))
    return (
        Measured("of 128 positions no two are equal", closest > 0, claimed=True),
        Measured("least distance between two of them, which neighbors have", closest, expected=neighbors, within=1e-5),
        Measured("the same to two decimals", round(neighbors, 2), expected=1.47),
    )


def _beyond_training() -> Sequence[Measured]:
    seen, beyond = encoding(TRAINED), encoding(26)[25]
    outside = (beyond > seen.amax(0)) | (beyond < seen.amin(0))
    return (
        Measured("position 1,000,000 has a vector", bool(encoding(1, start=1_000_000).isfinite().all()), claimed=True),
        Measured("parameters", sum(each.numel() for each in Sinusoidal(64).parameters()), claimed=0),
        Measured("features of position 25 outside their range at positions 0 to 13", int(outside.sum()), claimed=0),
        Measured("these are most of the 64", int(outside.sum()) > 32, expected=True),
    )


def _consistent_distances() -> Sequence[Measured]:
    pe, g = encoding(128), torch.Generator().manual_seed(0)
    inner = pe @ pe.T
    spread = max(float(inner.diagonal(k).max() - inner.diagonal(k).min()) for k in range(128))
    rises = ((pe[:100] @ pe[0]).diff() > 0).nonzero()[:, 0]
    w_q, w_k = torch.randn(2, 64, 64, generator=g, dtype=torch.float64)
    scores = (pe @ w_q) @ (pe @ w_k).T
    along = torch.stack([scores.diagonal(k).std() for k in range(64)]).mean() / scores.std()
    return (
        Measured("range of PE(p) PE(p + k) over p, at most", spread, claimed=0, tolerance=1e-5),
        Measured("offsets below 100 at which it rises again", len(rises), claimed=0, expected=38),
        Measured("the first of them, from offset", int(rises[0]), expected=5),
        Measured(
            "spread of scores along an offset through random W_Q and W_K, as a multiple of that of all",
            float(along),
            claimed=0,
            tolerance=0.5,
            expected=1,
            within=0.3,
        ),
    )


def _weight_of_position() -> Sequence[Measured]:
    position = float(encoding(32).square().mean().sqrt())

    def times(init: Init | float) -> float:
        return position / float(token_table(init, vocab_size=5000).weight.detach().square().mean().sqrt())

    with seeded(0):
        scaled = TokenEmbedding(5000, 64, init=1 / 8, scale="sqrt_dim")(torch.arange(5000)).detach()
    rows: Sequence[tuple[str, Init | float, float]] = (
        ("N(0, 0.15)", 0.15, 4.7),
        ("U(-0.125, 0.125)", "fan_in_uniform", 9.8),
        ("GPT-2's N(0, 0.02)", "normal", 35),
    )
    return (
        Measured("root mean square of PE", position, expected=sqrt(0.5), within=1e-6),
        *(Measured(f"as a multiple of rows of {name}", times(init), 1, 0.5, x, 0.02 * x) for name, init, x in rows),
        Measured("root mean square of rows of N(0, 1/8) times sqrt(64)", float(scaled.square().mean().sqrt()),
                 expected=1, within=0.02),
    )  # fmt: skip


def _index_of_pairs() -> Sequence[Measured]:
    # Feature 10 is the sine of pair 5, feature 11 its cosine.
    angle = 3 / 10_000 ** (2 * 5 / 64)
    return (
        Measured("PE(3, 10)", _value(3, 10), sin(angle), 1e-6),
        Measured("PE(3, 11)", _value(3, 11), cos(angle), 1e-6),
        Measured("values of i", len(inverse_frequencies(64)), claimed=32),
    )


def _wavelength_factors() -> Sequence[Measured]:
    frequencies = inverse_frequencies(64)
    factors, longest = (1 / frequencies).tolist(), float(wavelengths(frequencies)[-1])
    # The index of the pair, what is printed, by how much it may be off, what the formula gives by hand.
    rows = ((1, 1.17, 0.005, 1.3335), (2, 1.37, 0.005, 1.7783), (10, 3.98, 0.005, 17.783), (31, 6812, 0.5, 7498.9))
    return [
        *(Measured(f"10000^({2 * i}/64)", factors[i], says, by, right, 5e-5 * right) for i, says, by, right in rows),
        Measured("longest wavelength", longest, claimed=2 * pi * 6812, tolerance=2 * pi, expected=47_117, within=0.5),
    ]


def _printed(*rows: tuple[int, int, float, float | None], tolerance: float = 6e-4) -> Sequence[Measured]:
    """Measure PE(position, feature) beside what is printed and, where that is wrong, what the formula gives by hand."""
    return [
        Measured(f"PE({p}, {feature})", _value(p, feature), says, tolerance, right, 5e-5)
        for p, feature, says, right in rows
    ]


def _slow_features() -> Sequence[Measured]:
    sines = ((1, 1e-4, 1.3e-4), (2, 3e-4, 2.7e-4), (3, 4e-4, 4.0e-4), (4, 6e-4, 5.3e-4))
    return [
        *(Measured(f"PE({p}, 62)", _value(p, 62), says, 5e-5, right, 5e-6) for p, says, right in sines),
        *(Measured(f"PE({p}, 63)", _value(p, 63), 0.9999, 5e-5, 1, 2e-7) for p in (2, 3, 4)),
    ]


def _fast_features_and_sums() -> Sequence[Measured]:
    pairs = ((0.0, 1.0), (0.841, 0.540), (0.909, -0.416), (0.141, -0.990), (-0.757, -0.654))
    sums = [(0, 1, 1), (0.84, 0.54, 1), (0.91, -0.42, 1), (0.14, -0.99, 1)]
    sums += [(-0.76, -0.65, 1), (-0.96, 0.28, 1), (-0.28, 0.96, 1), (0.66, 0.75, 1)]
    off = largest_difference(encoding(8)[:, [0, 1, 63]], torch.tensor(sums, dtype=torch.float64))
    token = torch.tensor([-0.11, 0.06, -0.02, 0.09], dtype=torch.float64)
    total = (token + encoding(5)[4, [0, 1, 2, 63]]).tolist()
    return (
        *_printed(*((p, feature, pair[feature], None) for p, pair in enumerate(pairs) for feature in (0, 1))),
        *_printed((1, 62, 0.0001, None), (1, 63, 1.0, None), tolerance=5e-5),
        Measured("error of the printed PE in features 0, 1 and 63 of eight tokens", off, claimed=0, tolerance=0.005),
        *(Measured(f'feature {n} of the "6" at position 4', x, says, 0.011, right, 0.005)
          for n, x, says, right in zip((0, 1, 2, 63), total, (-0.87, -0.59, -0.29, 1.09), (-0.87, -0.59, 0.12, 1.09),
                                       strict=True)),
    )  # fmt: skip


def _offset_maps() -> Sequence[Measured]:
    pe, identity = encoding(40, start=10), torch.eye(64, dtype=torch.float64)
    maps = {k: offset_map(k, 64) for k in (1, 3, 60, -2)}
    return (
        *(Measured(f"largest error of one matrix for PE(p + {k}), 40 positions",
                   largest_difference(pe @ m.T, encoding(40, start=10 + k)), claimed=0, tolerance=1e-6)
          for k, m in maps.items()),
        Measured("M M^T less the identity, at most", max(largest_difference(m @ m.T, identity) for m in maps.values()),
                 expected=0, within=1e-12),
    )  # fmt: skip


def _smooth_and_bounded() -> Sequence[Measured]:
    pe = encoding(2000)
    steps = [degrees(acos(c)) for c in similarity(pe[:-1, :2], pe[1:, :2]).tolist()]
    return (
        Measured("all values below position 2000 are at most 1", float(pe.abs().max()) <= 1, claimed=True),
        Measured("largest change of a value between neighbors there", float(pe.diff(dim=0).abs().max()), 0, 0.1,
                 2 * sin(0.5), 1e-4),
        Measured("largest change of feature 0 between neighbors exceeds 0.9", bool(pe[:, 0].diff().abs().max() > 0.9),
                 expected=True),
        Measured("degrees by which features 0 and 1 rotate, least", min(steps), expected=180 / pi, within=1e-3),
        Measured("the greatest", max(steps), expected=180 / pi, within=1e-3),
    )  # fmt: skip


def _binary_counting() -> Sequence[Measured]:
    """Measure the sinusoid beside the bits of a binary number, whose periods double from one to the next."""
    periods = wavelengths(inverse_frequencies(64))
    bits = (encoding(128) > 0).unique(dim=0)
    turns = (encoding(4096)[:, 0] > 0).diff().double().mean()
    return (
        Measured("every pair of features changes more slowly than the one before",
                 bool((periods.diff() > 0).all()), True),
        Measured("period of a pair, as a multiple of the one before", float(periods[1] / periods[0]), claimed=2,
                 expected=10_000 ** (2 / 64), within=1e-9),
        Measured("of 128 positions, told apart by the signs of their 64 features", len(bits), claimed=128,
                 expected=len({tuple(_signs(p)) for p in range(128)})),
        Measured("share of steps at which the fastest feature changes its sign", float(turns),
                 expected=1 / pi, within=1e-3),
    )  # fmt: skip


def _signs(position: int) -> list[bool]:
    angles = [position / 10_000 ** (2 * i / 64) for i in range(32)]
    return [f(angle) > 0 for angle in angles for f in (sin, cos)]


def _learned_table() -> Sequence[Measured]:
    learned = Learned(dim=64, max_length=20)
    learned(positions(TRAINED)).square().sum().backward()
    assert learned.weight.grad is not None
    rows = learned.weight.grad.abs().sum(-1).nonzero()[:, 0]
    return (
        Measured("position 20 of a table of 20 has a vector", _has_position(learned, 21), claimed=False),
        Measured("rows that training on 14 tokens changes", len(rows), expected=TRAINED),
        Measured("the last of them", int(rows[-1]), expected=TRAINED - 1),
    )


def _has_position(learned: Learned, tokens: int) -> bool:
    try:
        learned(positions(tokens))
    except PositionError:
        return False
    return True


def _range_of_sums() -> Sequence[Measured]:
    with seeded(0):
        layer = InputLayer(20, 64, Sinusoidal(64), init="glorot_uniform")
    largest = float(layer(torch.arange(20)[None]).detach().abs().max())
    return (
        Measured("largest value of token plus position, with Glorot's table", largest, claimed=1.3, tolerance=0.2),
        Measured("it is at most 1 + 0.267", largest <= 1 + sqrt(6 / 84), expected=True),
    )


def transformer(layers: int, direction: str) -> Transformer:
    """Return a Transformer without positional encoding, with random weights, in float64."""
    settings = Settings(task="expressions", lengths=(), layers=layers, direction=direction, device="cpu")
    return Transformer(20, [Where()] * layers, settings, torch.Generator().manual_seed(0)).double().eval()


def all_expressions() -> Batch:
    """Return each of the 5 x 1000 expressions of three digits once."""
    digits = torch.cartesian_prod(*[torch.arange(10)] * 3).repeat(5, 1)
    operators = torch.arange(5).repeat_interleave(1000)
    ids = torch.full((5000, 8), 19)
    ids[:, 0], ids[:, 1], ids[:, 7], ids[:, 2:7:2] = operators + 12, 17, 18, digits + 2
    answers = torch.stack([*digits.unbind(1), digits.amax(1), digits.amin(1)])
    return Batch(ids, answers.gather(0, operators[None])[0] + 2, operators, 0)


def _ids(*texts: str) -> Tensor:
    return torch.tensor([expression_tokenizer().encode(text).ids for text in texts])


@torch.no_grad()
def _equivariance() -> Sequence[Measured]:
    model, x = transformer(2, "encoder"), _ids(EXAMPLE)
    order, others = torch.tensor([4, 0, 7, 2, 6, 1, 3, 5]), torch.tensor([0, 4, 7, 2, 6, 1, 3, 5])
    out, shuffled = model(x), model(x[:, order])
    one = largest_difference(model(x[:, others])[:, 0], out[:, 0])
    return (
        Measured("largest change of the output where the tokens are shuffled", largest_difference(shuffled, out),
                 claimed=0, tolerance=0.01),
        Measured("its difference to the shuffled output", largest_difference(shuffled, out[:, order]),
                 claimed=0, tolerance=1e-12, expected=0, within=1e-12),
        Measured("difference of one token's output where the others are shuffled", one, expected=0, within=1e-12),
    )  # fmt: skip


@torch.no_grad()
def _order_of_arguments() -> Sequence[Measured]:
    ids = _ids("First(1,6,2)", "First(6,2,1)")

    def same(layers: int, direction: str) -> bool:
        first, second = transformer(layers, direction)(ids, at=0 if direction == "encoder" else -1)
        difference = largest_difference(first, second)
        assert difference < 1e-12 or difference > 1e-6, difference
        return difference < 1e-12

    every = all_expressions()
    first = Batch(every.ids[:1000], every.targets[:1000], every.groups[:1000], 0)
    of_first, of_all = (Expressions(trained=(3,)).baselines(3, each)["order-free ceiling"] for each in (first, every))
    # Of three digits all are equal in 1 of 100 cases, two in 27 and none in 72; Max and Min need no order.
    by_hand = (1 * 3 / 3 + 27 * 2 / 3 + 72 * 1 / 3) / 100
    return (
        *(Measured(f"both look alike to an encoder of depth {n}", same(n, "encoder"), True) for n in (1, 2, 4)),
        Measured("both look alike to one causal layer", same(1, "decoder"), claimed=True),
        Measured("both look alike to two causal layers", same(2, "decoder"), claimed=True),
        Measured("best score of First without order", of_first, expected=by_hand, within=1e-6),
        Measured("best score without order", of_all, expected=(3 * by_hand + 2) / 5, within=1e-6),
    )


CLAIMS: tuple[Claim, ...] = measured_claims(
    {
        "0.17": _equivariance,
        "0.18": _order_of_arguments,
        "0.19": _distinct_positions,
        "0.20": _beyond_training,
        "0.21": _consistent_distances,
        "0.22": _weight_of_position,
        "0.23": _index_of_pairs,
        "0.24": _wavelength_factors,
        "0.25": lambda: _printed((1, 2, 0.755, 0.6816), (1, 3, 0.656, 0.7318)),
        "0.26": lambda: _printed((4, 2, -0.266, 0.1415), (4, 3, -0.964, -0.9899)),
        "0.27": _slow_features,
        "0.28": _fast_features_and_sums,
        "0.29": _offset_maps,
        "0.30": _smooth_and_bounded,
        "0.32": _learned_table,
        "0.33": _range_of_sums,
        "0.37": _binary_counting,
    }
)
