"""The fifth tutorial: the token table gives meaning to ids. Its layer has 2,000 tokens of 128 features.

Its small table of five tokens has the numbers 0.1, 0.2, ..., 2.0.
"""

from collections.abc import Sequence
from math import sqrt

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from experiments.tutorials.claim import Claim, Measured, measured_claims
from experiments.tutorials.tutorial_1_tokens import largest_difference, token_table
from whatwhere.analysis.nearest_neighbors import analogy
from whatwhere.analysis.position_similarity import similarity
from whatwhere.initialization import seeded
from whatwhere.models.parameter_count import parameters
from whatwhere.what import text
from whatwhere.what.embedding import TokenEmbedding
from whatwhere.what.row_adamw.optimizer import RowAdamW
from whatwhere.where.input.sinusoidal import Sinusoidal
from whatwhere.where.input_layer import InputLayer

THE, CAT, SAT, DOG = 42, 156, 89, 201
ROWS = 300
"""Of the tables that are trained for a step or two; the tutorial's ids are below."""
WORDS = ("king", "man", "woman")
SHOWN = ((0.52, 0.93, -0.12, 0.45), (0.30, 0.85, -0.20, 0.15), (0.25, 0.70, -0.05, 0.35))
PRINTED_RESULT = (0.47, 0.78, -0.07, 0.65)
MODELS = (("Small", 64, 3.2, 3.2), ("Educational", 128, 6.4, 6.4), ("GPT-2 Small", 768, 38.4, 38.6),
          ("GPT-2 Large", 1280, 64.0, 64.3), ("GPT-3", 12_288, 614.0, 617.6))  # fmt: skip
"""Name, dimensions, millions of parameters for 50,000 tokens, and for the 50,257 of GPT-2."""

Rows = Float[Tensor, "rows dim"]


def _small_table() -> Rows:
    return torch.arange(1, 21).reshape(5, 4) / 10


def _table() -> TokenEmbedding:
    return token_table("glorot_normal", ROWS, 8)


def _gradients(tokens: int) -> Float[Tensor, "tokens 8"]:
    return torch.randn(tokens, 8, generator=torch.Generator().manual_seed(1))


def _lookups() -> Sequence[Measured]:
    tokenizer = text.from_vocabulary({"a": 0, "cat": 1, "sat": 2, "on": 3, "mat": 4})
    ids = torch.tensor([tokenizer.encode(sentence).ids for sentence in ("a cat sat", "cat sat mat")])
    x = TokenEmbedding.from_weight(_small_table())(ids)
    first = torch.tensor([n / 10 for n in range(1, 13)]).reshape(3, 4)
    y = token_table("glorot_normal", 2000, 128)(torch.tensor([[THE, CAT, SAT], [THE, DOG, SAT]]))
    return (
        Measured("ids of both sentences", str(ids.tolist()), "[[0, 1, 2], [1, 2, 4]]"),
        Measured("shape for one sentence", str(tuple(x[0].shape)), "(3, 4)"),
        Measured("for both", str(tuple(x.shape)), "(2, 3, 4)"),
        Measured("vectors of a cat sat: numbers as printed", int(torch.isclose(x[0], first).sum()), 12),
        Measured("vector of mat, first number", round(x[1, 2, 0].item(), 6), 1.7),
        Measured("shape in its usage example", str(tuple(y.shape)), "(2, 3, 128)"),
        Measured("the has one vector in both sentences", torch.equal(y[0, 0], y[1, 0]), True),
        Measured("cat and dog have one vector", torch.equal(y[0, 1], y[1, 1]), expected=False),
    )


def _analogy() -> Sequence[Measured]:
    king, man, woman = rows = torch.tensor(SHOWN)
    result = king - man + woman
    table = torch.cat([rows, torch.tensor([[0.5, 0.1, 0.1, 0.1]])])  # and a fourth word, so that one is left
    cosines = similarity(result, rows).tolist()
    found = analogy(table, 1, 0, 2, k=1)
    right = int(((result - torch.tensor(PRINTED_RESULT)).abs() < 0.005).sum())
    expected = dict(zip(WORDS, (0.9671, 0.8553, 0.9655), strict=True))
    return (
        Measured("numbers of the result that are as printed", right, 4, expected=3),
        Measured("third number of the result", result[2].item(), -0.07, 0.005, 0.03, 1e-6),
        Measured("nearest of the words shown", max(zip(cosines, WORDS, strict=True))[1], "queen", expected="king"),
        *(Measured(f"cosine with {word}", cosine, expected=expected[word], within=5e-5)
          for word, cosine in zip(WORDS, cosines, strict=True)),
        Measured("nearest by 3CosAdd, of vectors of norm 1", WORDS[found.with_inputs.ids.item()], expected="woman"),
        Measured("row that remains with the words of the question excluded", int(found.without_inputs.ids.item()),
                 expected=3),
    )  # fmt: skip


def _cosines() -> Sequence[Measured]:
    cat = torch.tensor([0.5, 0.6, 0.7, 0.8])
    dog, car = torch.tensor([0.52, 0.58, 0.72, 0.79]), torch.tensor([0.1, -0.5, 0.2, 0.9])
    return (
        Measured("cosine of cat and dog", similarity(cat, dog).item(), 0.998, 5e-4, 0.9996, 5e-5),
        Measured("cosine of cat and car", similarity(cat, car).item(), 0.543, 5e-4, 0.4389, 5e-5),
    )


def _positive_rows() -> Sequence[Measured]:
    table = _small_table()
    centered = table - table.mean(0)
    least = similarity(table[:, None], table).min().item()
    opposite = similarity(centered[0], centered[4]).item()
    return (
        Measured("two rows of the example table have a cosine below 0.9", least < 0.9, True),
        Measured("with the mean row subtracted", opposite < 0.9, True),
        Measured("least cosine of two rows", least, expected=0.936, within=5e-4),
        Measured("cosine of a and mat with the mean row subtracted", opposite, expected=-1.0, within=1e-6),
    )


def _parameters() -> Sequence[Measured]:
    def millions(vocab_size: int, dim: int) -> float:
        return parameters({"vocab_size": vocab_size, "dim": dim}).tokens / 1e6

    def share(dim: int, layers: int, length: int) -> float:
        counted = parameters({"vocab_size": 50_257, "dim": dim, "max_length": length})
        # Attention has 4 d^2 weights, the feed-forward network 8 d^2; biases and norms the rest.
        blocks = layers * (12 * dim**2 + 13 * dim) + 2 * dim
        return counted.tokens / (counted.total + blocks)

    return (
        *(Measured(f"{name}: millions", millions(50_000, dim), printed, 0.5 if printed == int(printed) else 0.05)
          for name, dim, printed, _ in MODELS),
        *(Measured(f"{name}: millions for 50,257 tokens", millions(50_257, dim), expected=real, within=0.05)
          for name, dim, _, real in MODELS),
        Measured("share of the table in GPT-2 Small", share(768, 12, 1024), expected=0.310, within=0.006),
        Measured("in GPT-3", share(12_288, 96, 2048), expected=0.0035, within=7e-5),
    )  # fmt: skip


def _xavier() -> Sequence[Measured]:
    def std(vocab_size: int, dim: int) -> float:
        return token_table("glorot_normal", vocab_size, dim).weight.detach().std().item()

    few, many = std(2000, 128), std(20_000, 128)
    return (
        Measured("standard deviation of 2,000 x 128", few, sqrt(2 / 2128), 3e-4, 0.0307, 3e-4),
        Measured(
            "that of 2,000 tokens, as a multiple of that of 20,000", few / many, 1.0, 0.1, sqrt(20_128 / 2128), 0.07
        ),
        Measured("standard deviation for GPT-2's table", std(50_257, 768), expected=0.0063, within=6e-5),
        Measured(
            "GPT-2's own", token_table("normal", 2000, 768).weight.detach().std().item(), expected=0.02, within=2e-4
        ),
    )


def _cosines_before_training() -> Sequence[Measured]:
    rows = token_table("glorot_normal", 500, 64).weight.detach()
    first, second = torch.triu_indices(500, 500, offset=1)
    cosines = similarity(rows[first], rows[second])
    return (
        Measured("mean cosine of two of 500 rows", cosines.mean().item(), 0.0, 0.005),
        Measured("standard deviation", cosines.std().item(), expected=1 / 8, within=0.0025),
    )


def _its_backward(gradients: Tensor, ids: Sequence[int]) -> Rows:
    """Add the gradient of each position to its token's row, as the tutorial's loop does."""
    result = torch.zeros(ROWS, gradients.shape[-1])
    for gradient, token in zip(gradients, ids, strict=True):
        result[token] += gradient
    return result


def _repeated_token() -> Sequence[Measured]:
    table, g, ids = _table(), _gradients(5), [THE, CAT, SAT, THE, DOG]
    table(torch.tensor(ids)).backward(g)
    assert table.weight.grad is not None  # backward has set it
    gradient = table.weight.grad
    return (
        Measured("gradient of the is the sum of positions 0 and 3", torch.equal(gradient[THE], g[0] + g[3]), True),
        Measured("to its loop: largest difference", largest_difference(gradient, _its_backward(g, ids)), 0.0, 1e-6),
        Measured("gradient of cat is that of position 1", torch.equal(gradient[CAT], g[1]), expected=True),
        Measured("rows with a gradient", str(_changed(torch.zeros(ROWS, 8), gradient)),
                 expected=str(sorted({THE, CAT, SAT, DOG}))),
    )  # fmt: skip


def _changed(before: Rows, after: Rows) -> list[int]:
    return [int(row) for row in (before != after).any(-1).nonzero()[:, 0]]


def _two_steps(optimizer: torch.optim.Optimizer, table: TokenEmbedding) -> tuple[Rows, Rows, Float[Tensor, "2 8"]]:
    """Train on "the" alone, then on "cat" alone; return the rows before and after the second step, and gradients."""
    g, ids = _gradients(2), torch.arange(ROWS)
    table(torch.tensor([THE])).backward(g[:1])
    optimizer.step()
    before = table(ids).detach().clone()
    optimizer.zero_grad()
    table(torch.tensor([CAT])).backward(g[1:])
    optimizer.step()
    return before, table(ids).detach(), g


def _moved_rows() -> Sequence[Measured]:
    plain, heavy, without_decay, with_decay, tied = (_table() for _ in range(5))
    before, after, g = _two_steps(torch.optim.SGD(plain.parameters(), lr=0.1), plain)
    sgd = _changed(before, after), largest_difference(after[CAT], before[CAT] - 0.1 * g[1])
    before, after, _ = _two_steps(torch.optim.SGD(heavy.parameters(), lr=0.1, momentum=0.9), heavy)
    momentum = _changed(before, after)
    before, after, g = _two_steps(RowAdamW(without_decay, lr=0.1, weight_decay=0.0), without_decay)
    # m = .9 (.1 g) / (1 - .9^2) and v = .999 (.001 g^2) / (1 - .999^2), so the step is m / sqrt(v) by the sign of g.
    step = 0.1 * (0.9 * 0.1 / (1 - 0.9**2)) / sqrt(0.999 * 0.001 / (1 - 0.999**2))
    adam = _changed(before, after), largest_difference(after[THE], before[THE] - step * g[0].sign())
    before, after, _ = _two_steps(RowAdamW(with_decay, lr=0.1, weight_decay=0.01), with_decay)
    unseen = [t for t in range(ROWS) if t not in (THE, CAT)]
    adamw = len(_changed(before, after)), largest_difference(after[unseen], before[unseen] * (1 - 0.1 * 0.01))
    F.cross_entropy(tied.readout(tied(torch.tensor([CAT]))), torch.tensor([SAT])).backward()
    assert tied.weight.grad is not None  # backward has set it
    return (
        Measured("SGD: rows that move for token 156", str(sgd[0]), "[156]"),
        Measured("SGD: largest difference to E[156] - lr * gradient", sgd[1], 0.0, 1e-6),
        Measured("SGD with momentum, after a step on token 42", str(momentum), "[156]", expected="[42, 156]"),
        Measured("AdamW without decay, after a step on token 42", str(adam[0]), "[156]", expected="[42, 156]"),
        Measured("AdamW with decay: number of rows of 300", adamw[0], 1, expected=ROWS),
        Measured("tied to the output: rows with a gradient", len(_changed(torch.zeros(ROWS, 8), tied.weight.grad)), 1,
                 expected=ROWS),
        Measured("row 42 by Adam's moments: largest difference", adam[1], expected=0.0, within=1e-5),
        Measured("unseen rows times 1 - lr * decay: largest difference", adamw[1], expected=0.0, within=1e-7),
    )  # fmt: skip


def _tying() -> Sequence[Measured]:
    table, hidden = _table(), _gradients(3)
    sizes = {"vocab_size": 50_257, "dim": 768}
    saved = parameters(sizes | {"tied": False}).total - parameters(sizes | {"tied": True}).total
    return (
        Measured("logits are the products with E^T: largest difference",
                 largest_difference(table.readout(hidden), hidden @ table.weight.T), 0.0, 1e-6),
        Measured("fewer parameters", saved > 0, True),
        Measured("saved in GPT-2 Small", saved, expected=38_597_376),
        Measured("parameters of a tied table of 300 x 8", sum(p.numel() for p in table.parameters()), expected=2400),
    )  # fmt: skip


def _order() -> Sequence[Measured]:
    with seeded(0):
        layer = InputLayer(ROWS, 8, Sinusoidal(8))
    ids = torch.tensor([[CAT, SAT], [SAT, CAT]])
    rows, sums = layer.tokens(ids), layer(ids)
    return (
        Measured("both have the same vectors in another order", torch.equal(rows[0], rows[1].flip(0)), True),
        Measured("with positions too", largest_difference(sums[0], sums[1].flip(0)) < 0.5, expected=False),
    )


CLAIMS: tuple[Claim, ...] = measured_claims(
    {
        "4.1": _lookups,
        "4.2": _analogy,
        "4.3": _cosines,
        "4.4": _positive_rows,
        "4.5": _parameters,
        "4.6": _xavier,
        "4.7": _cosines_before_training,
        "4.8": _repeated_token,
        "4.9": _moved_rows,
        "4.10": _tying,
        "4.11": _order,
    }
)
