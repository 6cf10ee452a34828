"""The first tutorial, stage 1: token vectors. Its task: 20 tokens, 64 features, expressions such as Max(1,6,2)."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from whatwhere.claims.claim import Claim, ExactClaim, Measured
from whatwhere.initialization import seeded
from whatwhere.what.embedding import Init, TokenEmbedding
from whatwhere.what.expressions import expression_tokenizer

EXAMPLE = "Max(1,6,2)"
EXAMPLE_IDS = (15, 17, 3, 19, 8, 19, 4, 18)


def token_table(init: Init | float = "normal", vocab_size: int = 20, dim: int = 64, seed: int = 0) -> TokenEmbedding:
    """Return a table of random rows, by default of the tutorial's size.

    Args:
        init: as TokenEmbedding takes it.
        vocab_size: number of rows.
        dim: features of a row.
        seed: of the rows.
    """
    with seeded(seed):
        return TokenEmbedding(vocab_size, dim, init=init)


def example_ids() -> Tensor:
    """Return the ids of the tutorial's example, as a batch of one."""
    return torch.tensor([EXAMPLE_IDS])


def _tokenizer() -> Sequence[Measured]:
    tokenizer = expression_tokenizer()
    names = ("First", "Second", "Last", "Max", "Min")
    return (
        Measured(f"ids of {EXAMPLE}", str(tokenizer.encode(EXAMPLE).ids), str(list(EXAMPLE_IDS))),
        Measured("tokens", tokenizer.get_vocab_size(), 20),
        Measured("ids of the digits", str([tokenizer.token_to_id(d) for d in "0123456789"]), str(list(range(2, 12)))),
        Measured(f"ids of {', '.join(names)}", str([tokenizer.token_to_id(name) for name in names]),
                 expected="[12, 13, 14, 15, 16]"),
    )  # fmt: skip


def _lookup() -> Sequence[Measured]:
    table, ids = token_table(), example_ids()
    x = table(ids)[0]
    one_hot: Float[Tensor, "batch tokens vocab"] = F.one_hot(ids, 20).float()
    return (
        Measured("shape of the output", str(tuple(x.shape)), "(8, 64)"),
        Measured("the two commas have one vector", torch.equal(x[3], x[5]), True),
        Measured('the vector of "6" is row 8', torch.equal(x[4], table.weight[8]), True),
        Measured("largest difference to the product of one-hot rows with E",
                 (table(ids) - one_hot @ table.weight).abs().max().item(), expected=0.0),
    )  # fmt: skip


CLAIMS: tuple[Claim, ...] = (
    ExactClaim(
        id="0.1",
        says="With a vocabulary of 20 tokens, Max(1,6,2) becomes the ids 15, 17, 3, 19, 8, 19, 4, 18.",
        verdict="holds",
        right="Digit d has the id d + 2; First, Second, Last, Max and Min have 12 to 16, then come ( ) and the comma.",
        chapter="text-to-ids",
        measure=_tokenizer,
    ),
    ExactClaim(
        id="0.2",
        says="A lookup returns row t of the table for id t: eight ids give (8, 64), and both commas the same vector.",
        verdict="holds",
        right="A lookup is the product of a one-hot row with the table, to the last bit: every other term is zero.",
        chapter="token-table",
        measure=_lookup,
    ),
)
