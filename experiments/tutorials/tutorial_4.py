"""The fourth tutorial: from text to the input of the encoder, with sinusoids in 512 features.

It prints a formula of its own, in which every feature has another frequency.
"""

from collections.abc import Sequence
from math import cos, pi, sin, sqrt

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from experiments.tutorials.claim import Claim, Measured, measured_claims
from experiments.tutorials.tutorial_1_positions import encoding
from experiments.tutorials.tutorial_1_tokens import largest_difference, token_table
from whatwhere.comparison.model import Transformer
from whatwhere.comparison.settings import Settings
from whatwhere.initialization import seeded
from whatwhere.models.parameter_count import parameters
from whatwhere.position.positions import Positions, positions
from whatwhere.what import text
from whatwhere.where.catalogue import scheme
from whatwhere.where.frequencies import Layout, inverse_frequencies, offset_map, wavelengths
from whatwhere.where.input.learned import Learned
from whatwhere.where.input.sinusoidal import Sinusoidal
from whatwhere.where.input_layer import InputLayer

DIM = 512
SENTENCE, SENTENCE_IDS = "Your cat is a lovely cat", (105, 6587, 5475, 3578, 65, 6587)
CHASE = ("The cat chased the dog.", "The dog chased the cat.")
SWAP = [0, 4, 2, 3, 1, 5]
"""Positions of the one sentence's tokens in the other."""


def printed_frequencies(dim: int) -> Float64[np.ndarray, " dim"]:
    """Return 10000^(-2i/d) for the dimensions i = 0 to d - 1, as the tutorial prints it."""
    frequencies: np.ndarray = 10_000.0 ** (-2 * np.arange(dim) / dim)
    return frequencies


def printed_encoding(index: Int64[np.ndarray, " tokens"], dim: int) -> Float64[np.ndarray, "tokens dim"]:
    """Return the encoding by the printed formula: sine for even i, cosine for odd i, each with its own frequency."""
    angles = index[:, None] * printed_frequencies(dim)
    vectors: np.ndarray = np.where(np.arange(dim) % 2 == 0, np.sin(angles), np.cos(angles))
    return vectors


def _printed(tokens: int, dim: int = DIM) -> Float64[np.ndarray, "tokens dim"]:
    return printed_encoding(np.arange(tokens), dim)


def _chase() -> Tensor:
    """Return the ids of both sentences; "The" and "the" are two words."""
    tokenizer = text.words(CHASE[0])
    return torch.tensor([tokenizer.encode(sentence).ids for sentence in CHASE])


def _outputs(layers: int, direction: str, name: str = "none", at: int | None = None) -> tuple[Tensor, Tensor]:
    """Return what a Transformer with random weights makes of both sentences, in float64."""
    settings = Settings(task="expressions", lengths=(), layers=layers, direction=direction, device="cpu")
    with seeded(0), torch.no_grad():
        where = scheme(name, dim=settings.dim, num_heads=settings.heads, max_length=8)
        cat, dog = Transformer(6, [where] * layers, settings).double().eval()(_chase(), at=at)
    return cat, dog


def _both_cats() -> Sequence[Measured]:
    words = dict(zip(SENTENCE.split(), SENTENCE_IDS, strict=True))
    ids = text.encode(text.from_vocabulary(words), SENTENCE)[0]
    layer = InputLayer(6588, DIM, Sinusoidal(DIM))
    rows, x = layer.tokens(torch.tensor(ids)), layer(torch.tensor([ids]))[0]
    apart = largest_difference((x[5] - x[1]).double(), encoding(6, DIM)[5] - encoding(6, DIM)[1])
    return (
        Measured(f'ids of "{SENTENCE}"', str(ids), str(list(SENTENCE_IDS))),
        Measured("features of a vector", x.shape[-1], 512),
        Measured("both cats have one row", torch.equal(rows[1], rows[5]), True),
        Measured("both have one final vector", torch.equal(x[1], x[5]), False),
        Measured("their difference, less PE(5) - PE(1): largest number", apart, 0.0, 1e-6),
        Measured("their distance is above 1", bool((x[5] - x[1]).norm() > 1), expected=True),
    )


def _without_positions() -> Sequence[Measured]:
    cat_ids, dog_ids = _chase()
    table = token_table("normal", 6, 64).double()
    encoders = {layers: _outputs(layers, "encoder") for layers in (1, 2, 6)}
    cat, dog = _outputs(1, "decoder", at=-1)
    cat_2, dog_2 = _outputs(2, "decoder", at=-1)
    cat_with, dog_with = _outputs(1, "encoder", "sinusoidal")
    in_order = encoders[1]
    return (
        *(
            Measured(f"encoder, {layers} layers: largest difference of a word's outputs in both",
                     largest_difference(d, c[SWAP]),
                     0.0, 1e-12)
            for layers, (c, d) in encoders.items()
        ),
        Measured("their mean over the sentence: largest difference",
                 max(largest_difference(d.mean(0), c.mean(0)) for c, d in encoders.values()), 0.0, 1e-12),
        Measured("decoder, 1 layer: the last outputs are equal", largest_difference(dog, cat) < 1e-12, True),
        Measured("decoder, 2 layers: the last outputs are equal", largest_difference(dog_2, cat_2) < 1e-6, True),
        Measured("position by position, the outputs of the encoder differ",
                 largest_difference(in_order[1], in_order[0]) > 0.01,
                 expected=True),
        Measured("the sentences are the same set of tokens", sorted(cat_ids.tolist()) == sorted(dog_ids.tolist()),
                 expected=True),
        Measured("sum of their token vectors: largest difference",
                 largest_difference(table(cat_ids).sum(0), table(dog_ids).sum(0)), expected=0.0, within=1e-6),
        Measured("their token vectors are equal in another order", torch.equal(table(dog_ids), table(cat_ids)[SWAP]),
                 expected=True),
        Measured("and equal in this order", torch.allclose(table(dog_ids), table(cat_ids)), expected=False),
        Measured("with positions, the encoder's means differ",
                 largest_difference(dog_with.mean(0), cat_with.mean(0)) > 1e-6,
                 expected=True),
    )  # fmt: skip


def _largest_map_error(pe: Float64[np.ndarray, "tokens dim"]) -> float:
    """Return by how much the best linear map from PE(p) to PE(p + 3) errs."""
    best, *_ = np.linalg.lstsq(pe[:-3], pe[3:], rcond=None)
    return float(np.abs(pe[:-3] @ best - pe[3:]).max())


def _printed_formula() -> Sequence[Measured]:
    right, printed = encoding(8, DIM), _printed(8)

    def dimension(i: int) -> Measured:
        angle = 7 / 10_000 ** ((i - i % 2) / DIM)
        by_hand = cos(angle) if i % 2 else sin(angle)
        return Measured(f"PE(7, {i})", right[7, i].item(), float(printed[7, i]), 1e-3, by_hand, 1e-6)

    by_hand = torch.tensor([[sin(p), cos(p)] for p in range(4)], dtype=torch.float64)
    first_two = largest_difference(encoding(4, DIM)[:, :2], by_hand)
    norms, theirs = encoding(6, 64).norm(dim=-1), np.linalg.norm(_printed(6, 64), axis=-1)
    frequencies = inverse_frequencies(DIM)
    slow = int((printed_frequencies(DIM) < 1.001e-4).sum())
    return (
        Measured("PE(1, 1)", right[1, 1].item(), float(printed[1, 1]), 5e-5, 0.5403, 5e-5),
        *map(dimension, (1, 2, 3, 64, 65, 255, 256)),
        Measured("PE(1, 0), at an odd position", right[1, 0].item(), cos(1), 1e-3, sin(1), 1e-6),
        Measured("longest wavelength", wavelengths(frequencies)[-1].item(),
                 2 * pi / float(printed_frequencies(DIM)[-1]), 1e7, 60_611, 0.5),
        Measured("features of 512 that rotate by 0.0001 or less a position", int((frequencies <= 1.001e-4).sum()) * 2,
                 slow, expected=0),
        Measured("such features by the printed formula", slow, expected=256),
        Measured("PE(1, 1) by the printed formula", float(printed[1, 1]), expected=0.5697, within=5e-5),
        Measured("features 0 and 1 of all positions: largest difference to sin p, cos p", first_two,
                 expected=0.0, within=1e-6),
        Measured("norms in 64 features: largest difference to the root of 32",
                 largest_difference(norms, torch.full_like(norms, sqrt(32))),
                 expected=0.0, within=1e-6),
        Measured("least norm by the printed formula", float(theirs.min()), expected=5.647, within=5e-4),
        Measured("greatest norm by the printed formula", float(theirs.max()), expected=5.717, within=5e-4),
        Measured("best map of an offset of 3, largest error", _largest_map_error(encoding(515, 64).numpy()),
                 expected=0.0, within=1e-4),
        Measured("offset_map(3), largest error",
                 largest_difference(encoding(40, 64) @ offset_map(3, 64).T, encoding(40, 64, 3)),
                 expected=0.0, within=1e-6),
        Measured("best map by the printed formula, largest error", _largest_map_error(_printed(515, 64)),
                 expected=1.07, within=0.06),
    )  # fmt: skip


def _sample_rows() -> Sequence[Measured]:
    def last(layout: Layout, position: int) -> float:
        return float(Sinusoidal(DIM, layout=layout)(positions(2))[0, position, -1])

    layouts: tuple[Layout, ...] = ("interleaved", "half", "tensor2tensor")
    printed = _printed(2)[:, -1]
    return (
        *(
            Measured(f"last feature of position {p}, layout {layout}", last(layout, p), shown, 0.005, 1.0, 1e-7)
            for layout in layouts
            for p, shown in ((0, 0.01), (1, 0.02))
        ),
        Measured("by the tutorial's own formula, at 0", float(printed[0]), 0.01, 0.005, 1.0, 1e-7),
        Measured("by its own formula, at 1", float(printed[1]), 0.02, 0.005, 1.0, 1e-7),
    )


def _sums() -> Sequence[Measured]:
    """Add the three shown features of both rows: to the positions as shown, and to the sinusoid."""
    tokens = torch.tensor([[0.23, -0.45, 0.12], [0.89, 0.34, 0.45]])
    as_shown, rightly = InputLayer(2, 3, learned := Learned(3, max_length=2)), InputLayer(857, DIM, Sinusoidal(DIM))
    shown, ids = [0, 1, DIM - 1], text.from_vocabulary({"Hello": 152, "world": 856}).encode("Hello world").ids
    with torch.no_grad():
        as_shown.tokens.weight.copy_(tokens)
        learned.weight.copy_(torch.tensor([[0.0, 1.0, 0.01], [0.84, 0.54, 0.02]]))
        rightly.tokens.weight[ids] = rightly.tokens.weight[ids].index_copy(1, torch.tensor(shown), tokens)
        sums = as_shown(torch.tensor([[0, 1]]))[0].tolist()
        right = rightly(torch.tensor([ids]))[0, :, shown].tolist()
    printed, expected = ((0.23, 0.55, 0.13), (1.73, 0.88, 0.47)), ((0.23, 0.55, 1.12), (1.73, 0.88, 1.45))
    return (
        *(Measured(f"{word}, feature {shown[i]}", sums[p][i], printed[p][i], 0.005)
          for p, word in enumerate(("Hello", "world")) for i in range(3)),
        *(Measured(f"{word}, feature {shown[i]}, with the sinusoid", right[p][i], expected=expected[p][i], within=0.005)
          for p, word in enumerate(("Hello", "world")) for i in range(3)),
    )  # fmt: skip


def _sizes_at_start() -> Sequence[Measured]:
    norms, where = token_table("normal", 2000, DIM).weight.detach().norm(dim=-1), encoding(DIM, DIM).norm(dim=-1)
    return (
        Measured("a position is shorter than a token", bool(where.max() < norms.min()), True),
        Measured("largest number of the encoding", encoding(DIM, DIM).abs().max().item(), expected=1.0, within=1e-6),
        Measured("norm of a position, least", where.min().item(), expected=16.0, within=1e-5),
        Measured("norm of a position, greatest", where.max().item(), expected=16.0, within=1e-5),
        Measured("as a multiple of a row of N(0, 0.02)", (16 / norms).mean().item(), expected=35.36, within=0.36),
    )


def _one_vector_a_position() -> Sequence[Measured]:
    pe = encoding(DIM, DIM)
    apart = sqrt(2 * (1 - inverse_frequencies(DIM).cos()).sum())
    layer, ids = InputLayer(100, DIM, Sinusoidal(DIM)), torch.randint(100, (2, 8), generator=_generator())
    added = (layer(ids) - layer.tokens(ids)).double()
    packed = (layer(ids, Positions.packed([3, 5])) - layer.tokens(ids)).double()
    randomized = Sinusoidal(DIM)(Positions.randomized(8, max_length=100, batch=2, generator=_generator()))
    return (
        Measured("different vectors of 512 positions", len(pe.unique(dim=0)), 512),
        Measured("two texts, largest difference of what is added to them",
                 largest_difference(added[0], added[1]), 0.0, 1e-6),
        Measured("to the sinusoid: largest difference", largest_difference(added, encoding(8, DIM)), 0.0, 1e-6),
        Measured("packed texts: largest difference",
                 largest_difference(packed, torch.cat([encoding(3, DIM), encoding(5, DIM)])),
                 0.0, 1e-6),
        Measured("distance of the two closest", torch.pdist(pe).min().item(), expected=apart, within=1e-5),
        Measured("that of neighbors", apart, expected=3.71, within=0.005),
        Measured("randomized positions: two texts differ", largest_difference(randomized[0], randomized[1]) > 0.5,
                 expected=True),
    )  # fmt: skip


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def _longer_sequences() -> Sequence[Measured]:
    seen, following = encoding(64, DIM), encoding(1, DIM, start=64)[0]
    new = ((following > seen.amax(0)) | (following < seen.amin(0))).unflatten(0, (256, 2))
    angles = [p / 10_000 ** (2 * i / DIM) for i in range(256) for p in range(65)]
    counted = [_outside([f(angle) for angle in angles[65 * i : 65 * i + 65]]) for i in range(256) for f in (sin, cos)]
    outside = list(zip(counted[0::2], counted[1::2], strict=True))
    return (
        Measured("position 1,000,000 has a vector", bool(encoding(1, DIM, start=1_000_000).isfinite().all()), True),
        Measured("after 64 positions, pairs of 256 with a feature outside the range seen", int(new.any(-1).sum()),
                 expected=sum(map(any, outside))),
        Measured("those with both outside", int(new.all(-1).sum()), expected=sum(map(all, outside))),
    )  # fmt: skip


def _outside(values: Sequence[float]) -> bool:
    """Return whether the last value is outside the range of those before."""
    return not min(values[:-1]) <= values[-1] <= max(values[:-1])


def _fifty_thousand_words() -> Sequence[Measured]:
    table, ids = token_table("normal", 50_000, DIM), torch.arange(0, 50_000, 499)
    with torch.no_grad():
        nearest = table.readout(table(ids)).argmax(-1)
    return (
        Measured("numbers of the table", parameters(table).total, 25_600_000),
        Measured("of 101 rows, those with the greatest product with themselves", int((nearest == ids).sum()), 101),
    )


CLAIMS: tuple[Claim, ...] = measured_claims(
    {
        "3.1": _both_cats,
        "3.2": _without_positions,
        "3.3": _printed_formula,
        "3.4": _sample_rows,
        "3.5": _sums,
        "3.6": _sizes_at_start,
        "3.7": _one_vector_a_position,
        "3.8": _longer_sequences,
        "3.9": _fifty_thousand_words,
    }
)
