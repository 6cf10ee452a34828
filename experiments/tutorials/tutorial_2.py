"""The second tutorial: token vectors and sinusoids in PyTorch. Its sentence has six tokens of 4 features.

It prints what one run of its code gave.
"""

from collections.abc import Sequence
from math import sin, sqrt

import torch
from jaxtyping import Float
from tokenizers import Tokenizer
from torch import Tensor

from experiments.tutorials.claim import Claim, Measured, measured_claims
from experiments.tutorials.tutorial_1_tokens import largest_difference, token_table
from whatwhere.analysis.position_similarity import similarity
from whatwhere.errors import TextError
from whatwhere.initialization import seeded
from whatwhere.models.parameter_count import parameters
from whatwhere.position.positions import positions
from whatwhere.what import text
from whatwhere.what.embedding import TokenEmbedding
from whatwhere.where.binding import Where
from whatwhere.where.frequencies import inverse_frequencies, offset_map, sinusoid
from whatwhere.where.input.sinusoidal import Sinusoidal
from whatwhere.where.input_layer import InputLayer

SENTENCE = "The cat sat on the mat."
VOCABULARY = {"The": 0, "cat": 1, "sat": 2, "on": 3, "the": 4, "mat": 5}
BY_HAND = ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6), (0.7, 0.8, 0.9), (0.1, 0.4, 0.7), (0.1, 0.2, 0.3), (0.3, 0.6, 0.9))
"""Its example table, in which the rows of "The" and "the" are equal."""
PRINTED_ROWS = (
    (2.5494626, 2.1836805, -0.6540274, 0.46965423),
    (0.97532207, 0.6788647, 0.96263754, -0.7236505),
    (-1.2769781, 1.6223831, 1.5896688, -0.56061673),
    (-0.19115989, 0.3766303, 0.92879164, -1.8446202),
    (-0.0528306, -0.43373212, 0.03201937, -1.5071114),
    (0.9814359, -0.16224287, 1.2935413, 0.2622175),
)
PRINTED_POSITIONS = (
    (0.0000, 1.0000, 0.0000, 1.0000),
    (0.8415, 0.5403, 0.0100, 0.9999),
    (0.9093, -0.4161, 0.0200, 0.9998),
    (0.1411, -0.9900, 0.0300, 0.9996),
    (-0.7568, -0.6536, 0.0400, 0.9992),
    (-0.9589, 0.2837, 0.0500, 0.9988),
)
PRINTED_SUMS = (
    (2.5495, 3.1837, -0.6540, 1.4697),
    (1.8168, 1.2192, 0.9726, 0.2763),
    (-0.3677, 1.2062, 1.6097, 0.4392),
    (-0.0500, -0.6134, 0.9588, -0.8451),
    (-0.8096, -1.0874, 0.0720, -0.5079),
    (0.0225, 0.1214, 1.3435, 1.2610),
)
HALF_A_DIGIT = 5.1e-5
"""Of four printed decimals, and the rounding of float32."""


def _its_layer() -> InputLayer:
    """Return the tutorial's input layer, with the rows that it printed."""
    layer = InputLayer(6, 4, Sinusoidal(4))
    layer.tokens = TokenEmbedding.from_weight(torch.tensor(PRINTED_ROWS))
    return layer


def _right(numbers: Tensor, printed: Sequence[Sequence[float]]) -> int:
    """Return how many printed numbers equal the computed ones."""
    return int(((numbers - torch.tensor(printed)).abs() <= HALF_A_DIGIT).sum())


def _encodes(tokenizer: Tokenizer, sentence: str) -> bool:
    """Return whether a vocabulary has all tokens of a sentence."""
    try:
        text.encode(tokenizer, sentence)
    except TextError:
        return False
    return True


def _two_spellings() -> Sequence[Measured]:
    ids, _ = text.encode(text.from_vocabulary(VOCABULARY), "The the")
    x = TokenEmbedding.from_weight(torch.tensor(PRINTED_ROWS))(torch.tensor(ids))
    lowercase = text.encode(text.words(SENTENCE, lowercase=True), SENTENCE)[0]
    by_hand = TokenEmbedding.from_weight(torch.tensor(BY_HAND))
    gradient = torch.randn(1, 6, 3, generator=torch.Generator().manual_seed(0))
    by_hand(torch.arange(6)[None]).backward(gradient)
    torch.optim.SGD(by_hand.parameters(), lr=0.1).step()
    return (
        Measured("ids of The and the", str(ids), expected="[0, 4]"),
        Measured("cosine of the rows that its run printed", similarity(*x).item(), 1.0, 5e-4, -0.334, 5e-4),
        Measured("its example rows 0 and 4 stay equal in a training step", torch.equal(*by_hand.weight[[0, 4]]), True),
        Measured("one id where the tokenizer writes lower case", lowercase[0] == lowercase[4], expected=True),
    )


def _fewer_dimensions() -> Sequence[Measured]:
    def shorter(vocab_size: int, dim: int) -> bool:
        return parameters({"vocab_size": vocab_size, "dim": dim}).tokens < vocab_size**2

    sizes = {"GPT-2": (50_257, 768), "BERT": (30_522, 768), "Llama 2": (32_000, 4096)}
    return (
        *(
            Measured(f"{name}: rows are shorter than one-hot rows", shorter(*size), True)
            for name, size in sizes.items()
        ),
        Measured("the 20 tokens of the first tutorial, in 64 features: likewise", shorter(20, 64), expected=False),
    )


def _tokens() -> Sequence[Measured]:
    ids, tokens = text.encode(text.words(SENTENCE), SENTENCE)
    vocabulary = text.from_vocabulary(VOCABULARY)
    without = text.encode(vocabulary, SENTENCE.removesuffix("."))[0]
    return (
        Measured("tokens of its sentence", len(ids), 6, expected=7),
        Measured("the last one", tokens[-1], expected="."),
        Measured("ids without the full stop", str(without), expected="[0, 1, 2, 3, 4, 5]"),
        Measured("its vocabulary has all tokens", _encodes(vocabulary, SENTENCE), expected=False),
    )


def _random_rows() -> Sequence[Measured]:
    one, same, other = (token_table("torch", 10, 4, seed).weight for seed in (1, 1, 2))
    squares = token_table("torch", 5000, 64).weight.square().sum(-1)
    encoding = Sinusoidal(64)(positions(100))[0].norm(dim=-1)
    return (
        Measured("tables of two seeds have a number in common", bool((one == other).any()), False),
        Measured("tables of one seed are equal", torch.equal(one, same), expected=True),
        Measured(
            "standard deviation of a new table", token_table("torch", 500, 64).weight.std().item(), expected=1.0,
            within=0.02,
        ),
        Measured(
            "norm of a row of 64 features (root mean square)", squares.mean().sqrt().item(), expected=8.0, within=0.16
        ),
        Measured("least norm of a position", encoding.min().item(), expected=sqrt(32), within=1e-5),
        Measured("largest norm of a position", encoding.max().item(), expected=sqrt(32), within=1e-5),
    )  # fmt: skip


def _printed_tables() -> Sequence[Measured]:
    layer, ids = _its_layer(), torch.arange(6)[None]
    encoding = Sinusoidal(4)(positions(6))[0]
    return (
        Measured("shape of the sums", str(tuple(layer(ids)[0].shape)), "(6, 4)"),
        Measured("numbers of the encoding that are right", _right(encoding, PRINTED_POSITIONS), 24),
        Measured("sums that are right", _right(layer(ids)[0], PRINTED_SUMS), 24),
    )


def _index() -> Sequence[Measured]:
    column = Sinusoidal(4)(positions(6))[0, :, 2]
    return (
        Measured("frequency of feature 2, of 4", inverse_frequencies(4)[1].item(), 1e-4, 1e-6, 0.01, 1e-9),
        Measured("PE(5, 2)", column[5].item(), sin(5e-4), 5e-5, sin(0.05), 1e-6),
    )


def _its_function(tokens: int, dim: int) -> Float[Tensor, "tokens dim"]:
    """Compute what its positional_encoding does: sines in the even features, cosines in the odd ones."""
    table = torch.zeros(tokens, dim)
    angles = torch.arange(tokens)[:, None] / 10_000 ** (torch.arange(0, dim, 2) / dim)
    table[:, 0::2], table[:, 1::2] = angles.sin(), angles.cos()
    return table


def _widths() -> Sequence[Measured]:
    def runs(dim: int) -> bool:
        try:
            _its_function(6, dim)
        except RuntimeError:
            return False
        return True

    def error(dim: int) -> float:
        return largest_difference(_its_function(6, dim), Sinusoidal(dim)(positions(6))[0])

    return (
        *(Measured(f"d_model = {d}: largest difference to the formula", error(d), 0.0, 1e-6) for d in (2, 4, 64)),
        Measured("d_model = 5 gives an encoding", runs(5), True, expected=False),
    )


def _context() -> Sequence[Measured]:
    one, other = "the cat chased the mouse", "the mouse chased the cat"
    tokenizer = text.words(one)
    ids = torch.tensor([text.encode(tokenizer, sentence)[0] for sentence in (one, other)])
    with seeded(0):
        x = InputLayer(4, 16, Sinusoidal(16), init=1.0)(ids).detach()
    y = Where().at(positions(5)).attention(x[:, None], x[:, None], x[:, None], causal=False)[:, 0]
    same = [0, 2, 3]  # the, chased, the: one token at one position in both sentences
    return (
        Measured(
            "vectors of one token at one position differ by sentence", not torch.equal(x[0, same], x[1, same]), True
        ),
        Measured("vectors of one token differ by position", not torch.allclose(x[0, 0], x[0, 3]), expected=True),
        Measured(
            "they differ by sentence after attention",
            bool((y[0, same] - y[1, same]).abs().amax(-1).min() > 1e-3),
            expected=True,
        ),
    )


def _fixed_rows() -> Sequence[Measured]:
    tokenizer = text.words("the bank of the river , the bank account")
    table = token_table("torch", tokenizer.get_vocab_size(), 8)
    river, account = (table(torch.tensor(tokenizer.encode(t).ids)) for t in ("the river bank", "bank account"))
    with_unknown = text.from_vocabulary(VOCABULARY | {"<UNK>": 6}, unknown="<UNK>")
    foreign = "The Döner sat, 猫!"

    def back(kind: text.Kind) -> str:
        trained = text.train(kind, SENTENCE, vocab_size=300)
        return str(trained.decode(text.encode(trained, foreign)[0]))

    return (
        Measured("bank has one vector in two contexts", torch.equal(river[2], account[0]), True),
        Measured("ids of The dog, with <UNK>", str(text.encode(with_unknown, "The dog")[0]), "[0, 6]"),
        Measured("its vocabulary alone has all tokens of The dog",
                 _encodes(text.from_vocabulary(VOCABULARY), "The dog"), expected=False),
        Measured("a text of unseen words comes back from subwords (byte-level BPE)", back("bpe"), foreign),
        Measured("and from bytes", back("byte"), foreign),
    )  # fmt: skip


def _absolute_and_relative() -> Sequence[Measured]:
    pe = sinusoid(torch.arange(1000), 64).double()
    own = int(((pe @ pe.T).argmax(-1) == torch.arange(1000)).sum())
    index = torch.arange(10, 190)

    def attended(k: int) -> bool:
        """Return whether a map of queries alone makes each position attend to the one k further."""
        return torch.equal((pe[index] @ offset_map(k, 64).T @ pe[:200].T).argmax(-1), index + k)

    layer, ids = _its_layer(), torch.arange(6)[None]
    near, far = (layer(ids, positions(6, start=start))[0].double() for start in (0, 1000))
    bare_near, bare_far = (Sinusoidal(4)(positions(6, start=start))[0].double() for start in (0, 1000))
    bare = largest_difference(bare_near @ bare_near.T, bare_far @ bare_far.T)
    changed = ((near @ near.T - far @ far.T).abs() > 0.1).double().mean().item()
    return (
        Measured("positions of 1,000 that are most like themselves", own, 1000),
        *(Measured(f"one matrix shifts attention by {k}", attended(k), True) for k in (-1, -5, 3)),
        Measured("inner products of its sums are the same 1,000 positions later", changed == 0, True),
        Measured("share of them that changes by more than 0.1", changed, expected=0.75, within=0.25),
        Measured("largest change of the inner products of the encodings alone", bare, expected=0.0, within=1e-5),
    )


CLAIMS: tuple[Claim, ...] = measured_claims(
    {
        "1.1": _two_spellings,
        "1.3": _fewer_dimensions,
        "1.4": _tokens,
        "1.5": _random_rows,
        "1.6": _printed_tables,
        "1.7": _index,
        "1.8": _widths,
        "1.9": _context,
        "1.10": _fixed_rows,
        "1.11": _absolute_and_relative,
    }
)
