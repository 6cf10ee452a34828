"""Memory and traffic of one token table under AdamW, for every way of holding it on many ranks: arithmetic alone."""

from dataclasses import dataclass
from math import ceil

import numpy as np

from whatwhere.report.text import NARROW, number

STATE, GRADIENT, ID = 12, 4, 8
"""Bytes of float32 weight with two moments, of a gradient, and of the id of a row."""
FORMULAS = """\
With n ranks, V rows of d features, T tokens of a rank, R different ones among them, and c bytes of an element that
`fully_shard` gathers, a rank sends in a step:

```text
replicated                  2 (n - 1) / n  *  4 V d
replicated, rows gathered   (n - 1)        *  R (4 d + 8)
FSDP                        (n - 1) / n    *  (c + 4) V d
vocabulary shards of s      2 (s - 1) / s  *  4 T d                        one group, n = s
                            2 (s - 1) / s  *  c T d  +  (g - 1) / g  *  (c + 4) V d / s   g = n / s groups
rows to their owners        (n - 1) / n    *  R (8 d + 8)
R                           sum over tokens r of 1 - (1 - p_r)^T,  p_r proportional to 1 / r
```

Between steps it holds 16 bytes of each element of its rows (weight, moments and gradient), or 12 where gradients are
rows: V d elements of a replicated table, V d / n of the others. At most it also holds a copy of the gradient
(replicated), the rows of all ranks (gathered), 2 c + 4 bytes of each gathered element (`fully_shard`), or three times
its rows (owners)."""
_EXACT, _BIN = 1 << 20, 1.0005
_UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


@dataclass(frozen=True)
class TableSettings:
    """A token table, the ranks that train it, and the text of one step.

    Args:
        vocab_size, dim: rows and features.
        ranks: processes, each with its own tokens.
        tokens: of each rank in one step.
        shards: ranks among which the vocabulary is sharded, a divisor of all; `fully_shard` spreads each shard over
            groups of them.
        compute_bytes: of an element of what `fully_shard` gathers: 2 under a bfloat16 policy, 4 of float32.
    """

    vocab_size: int
    dim: int
    ranks: int
    tokens: int = 8192
    shards: int = 8
    compute_bytes: int = 2


@dataclass(frozen=True)
class Holding:
    """One way of holding the table: bytes of a rank between steps, at most in a step, and sent in a step."""

    name: str
    kept: int
    peak: int
    sent: int


def table_costs(settings: TableSettings) -> tuple[Holding, ...]:
    """Return what each way of holding a table costs: FORMULAS with rows that are whole.

    An all-reduce sends each byte 2 (n - 1) / n times, an all-gather, reduce-scatter or all-to-all (n - 1) / n times. A
    rank has V / n rows, rounded up; an owner one more where n divides V.
    """
    n, shards, width = settings.ranks, settings.shards, settings.dim
    groups = n // shards
    rows = expected_rows(settings.vocab_size, settings.tokens)
    table, row_elements = settings.vocab_size * width, rows * width
    part = ceil(settings.vocab_size / n) * width
    part_of_shard = ceil(ceil(settings.vocab_size / shards) / groups) * width
    own = (settings.vocab_size // n + 1) * width
    full = STATE + GRADIENT
    copies, spread = 2 * settings.compute_bytes + GRADIENT, settings.compute_bytes + GRADIENT
    vectors = settings.tokens * width * (4 if groups == 1 else settings.compute_bytes)
    found = {
        "replicated": (full * table, (full + GRADIENT * (n > 1)) * table, 2 * (n - 1) / n * table * GRADIENT),
        "replicated, rows gathered": (
            STATE * table,
            STATE * table + n * row_elements * GRADIENT,
            (n - 1) * (row_elements * GRADIENT + rows * ID),
        ),
        "FSDP": (full * part, full * part + copies * part * n, (n - 1) * spread * part),
        "vocabulary shards": (
            full * part_of_shard,
            full * part_of_shard + (copies * part_of_shard * groups if groups > 1 else 0),
            2 * (shards - 1) / shards * vectors + (groups - 1) * spread * part_of_shard,
        ),
        "rows to their owners": (
            STATE * own,
            STATE * own + 3 * row_elements * GRADIENT,
            (n - 1) / n * (row_elements * 2 * GRADIENT + rows * ID),
        ),
    }
    return tuple(Holding(name, *map(round, costs)) for name, costs in found.items())


def expected_rows(vocab_size: int, tokens: int, exponent: float = 1.0) -> float:
    """Return how many different tokens a text is expected to have, drawn independently by Zipf's law.

    It is the sum of 1 - (1 - p)^tokens over the vocabulary; above a million rows, over bins of nearly equal p.
    """
    rank = np.arange(1.0, min(vocab_size, _EXACT) + 1)
    weight = np.ones_like(rank)
    if vocab_size > _EXACT:
        bins = int(np.log(vocab_size / _EXACT) / np.log(_BIN)) + 1
        edges = np.geomspace(_EXACT + 0.5, vocab_size + 0.5, bins + 1)
        rank = np.concatenate([rank, (edges[1:] + edges[:-1]) / 2])
        weight = np.concatenate([weight, np.diff(edges)])
    share = rank**-exponent
    share /= (share * weight).sum()
    return float((-np.expm1(tokens * np.log1p(-np.minimum(share, 1 - 1e-16))) * weight).sum())


def size(bytes_: float) -> str:
    """Format a number of bytes in the unit that fits."""
    factor, unit = next((each for each in _UNITS if bytes_ >= each[0]), (1, "bytes"))
    return f"{number(bytes_ / factor)}{NARROW}{unit}"
