"""What tutorials claim of the meaning of trained rows, measured on the token table of a real model.

The committed verdicts are those of all-MiniLM-L6-v2, whose 30,522 tokens have rows of 384 features.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from math import sqrt

import numpy as np
from jaxtyping import Float64

from experiments.tutorials.claim import Claim, Measured, measured_claims
from experiments.tutorials.tutorial_1_tokens import token_table
from whatwhere.analysis.nearest_neighbors import analogy, units
from whatwhere.analysis.token_map import FOUR_GROUPS, GroupNeighbors, group_neighbors
from whatwhere.models.checkpoint import Checkpoint
from whatwhere.models.checkpoint.lookup import Table, find_token, read_table

PAIRS = 20_000
"""Random pairs of rows that a cosine is compared with."""
SYNONYMS = (("happy", "delighted"), ("walk", "walked"), ("walk", "walking"), ("cat", "cats"), ("cat", "kitten"))
"""Of the tutorial's examples those of one token each in the model: "joyful" is of two."""
PICTURE = {"people": ("king", "queen", "man", "woman"), "animals": ("cat", "dog", "kitten", "puppy")}

Row = Float64[np.ndarray, " dim"]
Rows = Float64[np.ndarray, "rows dim"]


class _Words:
    """The rows of words in a model's token table, as vectors of norm 1."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint, self.table = checkpoint, read_table(checkpoint)

    def row_number(self, word: str) -> int:
        return self.table.row(find_token(self.checkpoint, word, self.table.rows))

    def unit(self, word: str) -> Row:
        row: Row = self.units([word])[0]
        return row

    def units(self, words: Sequence[str]) -> Rows:
        return _units(self.table, [self.row_number(word) for word in words])

    def difference(self, one: str, other: str) -> Row:
        """Return the direction of the row of one word minus that of another."""
        first, second = (self.table.weight[self.row_number(word)].astype(np.float64) for word in (one, other))
        direction: Row = units((first - second)[None])[0][0]
        return direction

    def cosine(self, one: str, other: str) -> float:
        return float(self.unit(one) @ self.unit(other))

    def rank(self, direction: Row, word: str, without: Iterable[str] = ()) -> int:
        """Return how near a word is to a direction: 1 is the nearest of all tokens."""
        cosines = units(self.table.weight.astype(np.float64))[0] @ direction
        cosines[[self.row_number(each) for each in without]] = -np.inf
        return 1 + int((cosines > cosines[self.row_number(word)]).sum())

    @cached_property
    def random_cosines(self) -> Float64[np.ndarray, " pairs"]:
        numbers = np.random.default_rng(0).integers(len(self.table.ids), size=(PAIRS, 2))
        numbers = numbers[numbers[:, 0] != numbers[:, 1]]
        first, second = (_units(self.table, numbers[:, side]) for side in (0, 1))
        return np.asarray((first * second).sum(-1))

    def is_close(self, cosine: float) -> bool:
        """Return whether a cosine is above those of 99 % of random pairs."""
        return cosine > float(np.quantile(self.random_cosines, 0.99))


def _units(table: Table, rows: Sequence[int] | np.ndarray) -> Rows:
    return units(table.weight[rows].astype(np.float64))[0]


def _king_and_queen(checkpoint: Checkpoint) -> Sequence[Measured]:
    words = _Words(checkpoint)
    cosine = words.cosine("king", "queen")

    def untrained(dim: int) -> Float64[np.ndarray, " pairs"]:
        rows = units(token_table("torch", 500, dim).weight.detach().double().numpy())[0]
        return np.asarray((rows @ rows.T)[np.triu_indices(500, 1)])

    return (
        Measured("king and queen are closer than 99 % of random pairs", words.is_close(cosine), True),
        Measured("two untrained rows are: mean cosine above 0.1", bool(untrained(64).mean() > 0.1), expected=False),
        Measured("cosine of king and queen", cosine),
        *(
            Measured(f"untrained rows of {dim} features: spread of the cosine", float(untrained(dim).std()),
                     expected=1 / sqrt(dim), within=0.05 / sqrt(dim))
            for dim in (4, 64, 300)
        ),
    )  # fmt: skip


def _synonyms(checkpoint: Checkpoint) -> Sequence[Measured]:
    words = _Words(checkpoint)
    cosines = {pair: words.cosine(*pair) for pair in SYNONYMS}
    return (
        *(
            Measured(f"{one} and {other} are closer than 99 % of random pairs", words.is_close(cosine), True)
            for (one, other), cosine in cosines.items()
        ),
        *(Measured(f"cosine of {one} and {other}", cosine) for (one, other), cosine in cosines.items()),
        Measured("mean cosine of random pairs", float(words.random_cosines.mean())),
        Measured("cosine that 99 % of random pairs are below", float(np.quantile(words.random_cosines, 0.99))),
    )


def _cat_dog_car(checkpoint: Checkpoint) -> Sequence[Measured]:
    words = _Words(checkpoint)
    dog, car = words.cosine("cat", "dog"), words.cosine("cat", "car")
    return (
        Measured("cat is closer to dog than to car", dog > car, True),
        Measured("cosine of cat and dog", dog),
        Measured("cosine of cat and car", car),
        Measured("cosine of cat and kitten", words.cosine("cat", "kitten")),
    )


def _neighbors(words: _Words, groups: Mapping[str, Sequence[str]]) -> GroupNeighbors:
    rows = words.units([word for group in groups.values() for word in group])
    return group_neighbors(rows, [number for number, group in enumerate(groups.values()) for _ in group])


def _picture(checkpoint: Checkpoint) -> Sequence[Measured]:
    words = _Words(checkpoint)
    man, king, woman = map(words.row_number, ("man", "king", "woman"))
    answer = analogy(words.table.weight, man, king, woman, k=1)
    without, with_inputs = (
        words.table.word(int(found.ids[0, 0])) for found in (answer.without_inputs, answer.with_inputs)
    )
    return (
        Measured(
            "of eight words of people and animals, nearest of the others in the same group",
            _neighbors(words, PICTURE).stay,
            8,
        ),
        Measured("king - man + woman, its own words excluded", without, "queen"),
        Measured("king - man + woman, of all tokens", with_inputs, "queen"),
    )


def _four_groups(checkpoint: Checkpoint) -> Sequence[Measured]:
    words = _Words(checkpoint)
    found = _neighbors(words, FOUR_GROUPS)
    assert found.within is not None  # the groups have four words each
    assert found.between is not None
    return (
        Measured("of 16 words, nearest of the others in the same group", found.stay, 16),
        Measured("least cosine within a group", found.within[0]),
        Measured("greatest cosine within a group", found.within[1]),
        Measured("greatest cosine between two groups", found.between[1]),
    )


def _king_minus_man(checkpoint: Checkpoint) -> Sequence[Measured]:
    words = _Words(checkpoint)
    direction = words.difference("king", "man")
    cosines = {word: float(words.unit(word) @ direction) for word in ("royal", "royalty", "king")}
    among = words.rank(direction, "royal", without=("king", "man"))
    return (
        Measured("royal is among the ten nearest to king - man, these two excluded", among <= 10, True),
        Measured("royalty is nearer to king - man than king is", cosines["royalty"] > cosines["king"], True),
        *(Measured(f"cosine of king - man and {word}", cosine) for word, cosine in cosines.items()),
        Measured("cosine of king - man and queen - woman", float(words.difference("queen", "woman") @ direction)),
    )


CLAIMS: tuple[Claim, ...] = measured_claims(
    {
        "0.40": _synonyms,
        "1.2": _king_and_queen,
        "3.11": _cat_dog_car,
        "4.12": _picture,
        "4.14": _four_groups,
        "4.15": _king_minus_man,
    },
    "model",
)
