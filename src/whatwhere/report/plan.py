"""What a token table costs on many ranks, as sections."""

from dataclasses import dataclass

from whatwhere.parallel.plan import Holding, TablePlan, expected_rows
from whatwhere.report.section import Headline, Paragraph, Section, Table
from whatwhere.report.text import NARROW, count, number, percent

_UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


@dataclass(frozen=True)
class PlanRecord(Headline):
    """What `whatwhere plan --json` prints.

    Args:
        plan: the numbers.
    """

    plan: TablePlan


def headline(plan: TablePlan) -> str:
    """Return which ways send and hold the least, in one sentence without its full stop.

    Args:
        plan: of a table.
    """
    settings = plan.settings
    table = f"{settings.vocab_size:,} x {settings.dim:,} on {count(settings.ranks, 'rank')}"
    if settings.ranks == 1:
        return f"{table}: {size(plan.holdings[0].kept)} with AdamW; nothing is sent"
    sent = min(plan.holdings, key=lambda each: each.sent)
    peak = min(plan.holdings, key=lambda each: each.peak)
    words = f"{table}: {sent.name} sends least, {size(sent.sent)} a step"
    if peak.name == sent.name:
        return f"{words}, and has the lowest peak, {size(peak.peak)}"
    return f"{words}; {peak.name} has the lowest peak, {size(peak.peak)}"


def sections(plan: TablePlan) -> list[Section]:
    """Return the ways of holding a table, and how the rows that a step changes grow with the ranks.

    Args:
        plan: of a table.
    """
    settings = plan.settings
    compute = "bfloat16" if settings.compute_bytes == 2 else "float32"
    ways = Table(
        f"Bytes of each rank: float32 weights and AdamW; fully_shard gathers {compute}",
        ["way", "between steps", "at most in a step", "sent in a step"],
        [_row(holding) for holding in plan.holdings],
        numeric=(1, 2, 3),
        shorten="never",
    )
    shown = sorted({1, *(8**n for n in range(1, 8) if 8**n < settings.ranks), settings.ranks})
    rows = {n: expected_rows(settings.vocab_size, settings.tokens * n, settings.exponent) for n in shown}
    touched = Table(
        f"Rows that one step changes, at {count(settings.tokens, 'token')} a rank",
        ["ranks", "rows", "of the table"],
        [[f"{n:,}", f"{round(some):,}", percent(some / settings.vocab_size)] for n, some in rows.items()],
        numeric=(0, 1, 2),
        shorten="never",
    )
    groups = settings.ranks // plan.shards
    wanted = min(settings.shards, settings.ranks)
    notes = [
        f"Vocabulary shards: the rows are split among {count(plan.shards, 'rank')} with the same tokens"
        + (f" ({wanted:,} do not divide {settings.ranks:,})" if plan.shards < wanted else "")
        + (f", and each shard among {count(groups, 'group')} of them by fully_shard." if groups > 1 else "."),
        f"Gathering the rows of all ranks sends less than reducing a dense gradient up to "
        f"{count(plan.gathered_up_to, 'rank')}.",
        f"Computed, not measured: tokens are drawn by Zipf's law with exponent {number(settings.exponent)}. The table "
        "is not tied to an output projection, whose gradient has all rows, so that ways by rows save nothing. Not "
        "counted: the rest of the model, activations, and what libraries allocate.",
    ]
    return [
        Section("ways", "Ways of holding the table", [ways]),
        Section("rows", "Rows that a step changes", [touched, *map(Paragraph, notes)]),
    ]


def size(bytes_: float | int) -> str:
    """Format a number of bytes in the unit that fits.

    Examples:
        >>> size(137_438_953_472), size(512)
        ('137\\xa0GB', '512\\xa0bytes')
    """
    factor, unit = next((each for each in _UNITS if bytes_ >= each[0]), (1, "bytes"))
    return f"{number(bytes_ / factor)}{NARROW}{unit}"


def _row(holding: Holding) -> list[str]:
    return [holding.name, size(holding.kept), size(holding.peak), size(holding.sent)]
