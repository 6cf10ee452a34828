"""Memory and traffic of one token table under AdamW, for every way of holding it on many ranks: arithmetic alone."""

from dataclasses import dataclass
from math import ceil, isqrt

import numpy as np

from whatwhere.checks import require_positive, require_whole
from whatwhere.errors import SettingError

WEIGHT, MOMENTS, GRADIENT, ID = 4, 8, 4, 8
"""Bytes: float32 weight, moments and gradient of an element, and the id of a row."""
_EXACT = 1 << 20
_BIN = 1.0005


@dataclass(frozen=True)
class TableSettings:
    """A token table, the ranks that train it, and the text of one step.

    Args:
        vocab_size: rows.
        dim: features.
        ranks: processes, each with its own tokens.
        tokens: of each rank in one step.
        shards: most ranks among which the vocabulary is sharded, for the same tokens; the largest divisor of ranks up
            to it is used, and `fully_shard` spreads each shard over these groups.
        exponent: of Zipf's law, by which token number r is drawn r to this power less often than the first.
        compute_bytes: of an element of what `fully_shard` gathers: 2 under a bfloat16 policy, 4 of float32.

    Raises:
        ShapeError: If a size is no whole number of at least 1.
        SettingError: If a setting is out of its range.
    """

    vocab_size: int
    dim: int
    ranks: int
    tokens: int = 8192
    shards: int = 8
    exponent: float = 1.0
    compute_bytes: int = 2

    def __post_init__(self) -> None:
        require_whole(
            "plan",
            vocab_size=self.vocab_size,
            dim=self.dim,
            ranks=self.ranks,
            tokens=self.tokens,
            shards=self.shards,
        )
        require_positive("plan", exponent=self.exponent)
        if self.compute_bytes not in (2, 4):
            raise SettingError(f"compute_bytes is 2 (bfloat16) or 4 (float32), but got {self.compute_bytes}.")
        if max(self.vocab_size, self.tokens) > 10**12 or max(self.dim, self.ranks, self.shards) > 10**7:
            raise SettingError("plan: at most 10^12 rows and tokens, 10^7 features, ranks and shards.")

    @property
    def used_shards(self) -> int:
        """The ranks that share the vocabulary: the largest divisor of all that is at most `shards`."""
        small = [n for n in range(1, isqrt(self.ranks) + 1) if self.ranks % n == 0]
        return max(n for n in (*small, *(self.ranks // n for n in small)) if n <= self.shards)


@dataclass(frozen=True)
class Holding:
    """One way of holding the table.

    Args:
        name: of the way.
        kept: bytes that a rank holds between steps: weight and moments, and gradients that last as long.
        peak: the most bytes of the table, its gradient and its rows that a rank holds in a step.
        sent: bytes that a rank sends in a step.
    """

    name: str
    kept: int
    peak: int
    sent: int


@dataclass(frozen=True)
class TablePlan:
    """What every way of holding a table costs.

    Args:
        settings: of the table.
        shards: ranks among which vocabulary shards split the rows, `settings.used_shards`.
        rows_of_rank: different tokens that one rank's text is expected to have.
        rows_of_all: different tokens of all ranks' texts together.
        gathered_up_to: most ranks for which gathering all rows sends less than reducing a dense gradient.
        holdings: the ways, each with its bytes.
    """

    settings: TableSettings
    shards: int
    rows_of_rank: float
    rows_of_all: float
    gathered_up_to: int
    holdings: tuple[Holding, ...]


def plan_table(settings: TableSettings) -> TablePlan:
    """Return the bytes that a token table takes on each rank, and that a rank sends in a step, for each way to hold it.

    All ways hold float32 weights with the two moments of AdamW. An all-reduce sends each byte 2 (n - 1) / n times, an
    all-gather, reduce-scatter or all-to-all (n - 1) / n times. A rank has whole rows, V / n of them rounded up; an
    owner has one more where n divides V. Ways by rows, and shards of all ranks, send float32. The table is not tied:
    the gradient of a tied output projection has all rows, so of the ways by rows none saves anything.
    DistributedDataParallel reduces a copy of the gradient, which FSDP's peak has too; PyTorch 2.15 makes FSDP none in
    float32.

    Args:
        settings: of the table.

    Returns:
        The plan.

    Examples:
        >>> plan = plan_table(TableSettings(131_072, 4096, 1024))
        >>> {holding.name: round(holding.sent / 1e9, 2) for holding in plan.holdings}["rows to their owners"]
        0.12
    """
    n, shards = settings.ranks, settings.used_shards
    groups, width = n // shards, settings.dim
    rows = expected_rows(settings.vocab_size, settings.tokens, settings.exponent)
    all_rows = expected_rows(settings.vocab_size, settings.tokens * n, settings.exponent)
    table, row_elements = settings.vocab_size * width, rows * width
    part = ceil(settings.vocab_size / n) * width
    part_of_shard = ceil(ceil(settings.vocab_size / shards) / groups) * width
    own = (settings.vocab_size // n + 1) * width
    state = WEIGHT + MOMENTS
    full = state + GRADIENT
    copies, spread = 2 * settings.compute_bytes + GRADIENT, settings.compute_bytes + GRADIENT
    vectors = settings.tokens * width * (WEIGHT if groups == 1 else settings.compute_bytes)
    holdings = (
        _holding("replicated", full * table, full * table + (GRADIENT * table if n > 1 else 0),
                 _reduced(n) * table * GRADIENT),
        _holding("replicated, rows gathered", state * table, state * table + n * row_elements * GRADIENT,
                 (n - 1) * (row_elements * GRADIENT + rows * ID)),
        _holding("FSDP", full * part, full * part + copies * part * n, (n - 1) * spread * part),
        _holding("vocabulary shards", full * part_of_shard,
                 full * part_of_shard + (copies * part_of_shard * groups if groups > 1 else 0),
                 _reduced(shards) * vectors + (groups - 1) * spread * part_of_shard),
        _holding("rows to their owners", state * own, state * own + 3 * row_elements * GRADIENT,
                 _spread(n) * (row_elements * (WEIGHT + GRADIENT) + rows * ID)),
    )  # fmt: skip
    return TablePlan(settings, shards, rows, all_rows, int(2 * settings.vocab_size / rows), holdings)


def expected_rows(vocab_size: int, tokens: int, exponent: float) -> float:
    """Return how many different tokens a text is expected to have, drawn independently by Zipf's law.

    It is the sum of 1 - (1 - p)^tokens over the vocabulary; above a million rows, over bins of nearly equal p.

    Args:
        vocab_size: different tokens that there are.
        tokens: of the text.
        exponent: of Zipf's law; 0 draws all tokens equally often.

    Examples:
        >>> round(expected_rows(131_072, 8192, 1.0))
        3785
        >>> round(expected_rows(10, 1, 1.0), 12)
        1.0
    """
    number = np.arange(1.0, min(vocab_size, _EXACT) + 1)
    weight = np.ones_like(number)
    if vocab_size > _EXACT:
        bins = int(np.log(vocab_size / _EXACT) / np.log(_BIN)) + 1
        edges = np.geomspace(_EXACT + 0.5, vocab_size + 0.5, bins + 1)
        number = np.concatenate([number, (edges[1:] + edges[:-1]) / 2])
        weight = np.concatenate([weight, np.diff(edges)])
    share = number**-exponent
    share /= (share * weight).sum()
    return float((-np.expm1(tokens * np.log1p(-np.minimum(share, 1 - 1e-16))) * weight).sum())


def _holding(name: str, kept: float | int, peak: float | int, sent: float | int) -> Holding:
    return Holding(name, round(kept), round(peak), round(sent))


def _spread(ranks: float | int) -> float:
    """Return how often each byte is sent when it is gathered, scattered or exchanged among ranks."""
    return (ranks - 1) / ranks


def _reduced(ranks: float | int) -> float:
    """Return how often each byte is sent when it is reduced on all ranks."""
    return 2 * _spread(ranks)
