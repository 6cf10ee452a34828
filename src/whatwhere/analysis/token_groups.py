"""A named set of tokens in groups: how many have their nearest neighbor of the set in their own group."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int64

from whatwhere.analysis.float64_similarity import units
from whatwhere.errors import SettingError, ShapeError

FOUR_GROUPS: Mapping[str, Sequence[str]] = {
    "animals": ("cat", "dog", "kitten", "puppy"),
    "royalty": ("king", "queen", "prince", "princess"),
    "actions": ("ran", "walked", "ate", "drank"),
    "places": ("city", "town", "country", "nation"),
}
"""The words that the fifth tutorial draws, by group."""


@dataclass(frozen=True, eq=False)
class GroupNeighbors:
    """The nearest neighbor of each token within a named set, and the cosines within and between its groups.

    Args:
        nearest: row of the nearest other token of the set, by cosine.
        cosines: of each token and that neighbor.
        stay: number of tokens whose nearest neighbor is of their own group.
        compared: number of tokens whose group has another token, so that it could be.
        within: the least and the greatest cosine of two tokens of one group; None without such a pair.
        between: likewise, of two tokens of different groups.
    """

    nearest: Int64[np.ndarray, " tokens"]
    cosines: Float[np.ndarray, " tokens"]
    stay: int
    compared: int
    within: tuple[float, float] | None
    between: tuple[float, float] | None


def group_neighbors(rows: Float[np.ndarray, "tokens dim"], groups: Sequence[int]) -> GroupNeighbors:
    """Compute which tokens of a set have their nearest neighbor of the set, by cosine, in their own group.

    Raises:
        ShapeError: If there are fewer than two rows, or not as many groups as rows.

    Examples:
        >>> rows = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])
        >>> found = group_neighbors(rows, [0, 0, 1, 1])
        >>> found.nearest.tolist(), found.stay, found.compared
        ([1, 0, 3, 2], 4, 4)
    """
    if rows.ndim != 2 or len(rows) < 2 or len(groups) != len(rows):
        raise ShapeError(f"group_neighbors got rows {rows.shape} and {len(groups)} groups; it needs one for each row.")
    unit, _ = units(np.asarray(rows, np.float64))
    cosines = unit @ unit.T
    numbers = np.asarray(groups)
    same = numbers[:, None] == numbers[None, :]
    pairs = ~np.eye(len(rows), dtype=bool)
    nearest = np.where(pairs, cosines, -np.inf).argmax(axis=1)
    comparable = (same & pairs).any(axis=1)
    return GroupNeighbors(
        nearest=nearest,
        cosines=cosines[np.arange(len(rows)), nearest],
        stay=int((numbers[nearest] == numbers)[comparable].sum()),
        compared=int(comparable.sum()),
        within=_range(cosines[same & pairs]),
        between=_range(cosines[~same]),
    )


def parse_groups(text: str) -> dict[str, list[str]]:
    """Read tokens that are separated by commas; semicolons or line breaks separate groups, which may have names.

    Raises:
        SettingError: If no token is named, or two groups have one name.

    Examples:
        >>> parse_groups("royalty: king, queen; cat, dog")
        {'royalty': ['king', 'queen'], '2': ['cat', 'dog']}
    """
    groups: dict[str, list[str]] = {}
    parts = [part for part in text.replace("\n", ";").split(";") if part.strip(" ,\t\r")]
    for n, part in enumerate(parts):
        name, colon, rest = part.partition(":")
        named = bool(colon and name.strip())
        title = name.strip() if named else str(n + 1)
        tokens = [token.strip() for token in (rest if named else part).split(",") if token.strip()]
        if title in groups:
            raise SettingError(f"two groups of tokens are named {title!r}.\nName them apart, or merge them.")
        groups[title] = tokens
    if not any(groups.values()):
        raise SettingError("no tokens are named.\nSeparate them by commas, as in king, queen; cat, dog for two groups.")
    return groups


def _range(cosines: np.ndarray) -> tuple[float, float] | None:
    return (float(cosines.min()), float(cosines.max())) if cosines.size else None
