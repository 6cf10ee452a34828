"""Two comparisons: schemes that were trained side by side, as results.json has them, and two checkpoints."""

from collections.abc import Mapping
from typing import Any

from whatwhere.errors import SettingError
from whatwhere.studio.api.settings import known, one_of, whole
from whatwhere.studio.api.sheets import Left
from whatwhere.studio.jobs import Report
from whatwhere.studio.sources import Source

_TABLES = ("input", "readout")
_STEPS = 6
_MOST_NAMED = 200


def results(source: Source, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Give what a comparison found, as its results.json says it: scores, shift test, verdicts, and how it was made."""
    known(settings)
    found = source.results
    from whatwhere.comparison.reading import checked
    from whatwhere.studio.api import measured

    with checked(found.folder):
        return measured.told(found)


def left(source: Source) -> Left | None:
    """Leave all that was measured on a frozen page."""
    if source.kind != "results":
        return None
    from whatwhere.comparison.reading import checked
    from whatwhere.comparison.telling.answer import answer_seen
    from whatwhere.studio.api import measured

    with checked(source.results.folder):
        sheets = list(measured.sheets(source.results))
        return Left("Compare", [("compare.results", {})], sheets, said=[answer_seen(source.results)])


def difference(source: Source, settings: Mapping[str, Any], report: Report) -> dict[str, Any]:
    """Compare the two checkpoints that are open. It is a job, for large tables take a minute.

    Args:
        settings: table ("input", "readout"); k (10), neighbors that are compared; most (20), rows that are named.
    """
    known(settings, "table", "k", "most")
    table, k = one_of(settings, "table", _TABLES), whole(settings, "k", 10, 1, 100)
    most = whole(settings, "most", 20, 0, _MOST_NAMED)
    other = source.other
    if other is None:
        raise SettingError("one file is open, but two are compared.\nOpen both: whatwhere studio A B.")
    from whatwhere.inspection.difference import difference as differ

    steps = iter(range(_STEPS))

    def tell(said: str) -> None:
        report(next(steps, _STEPS - 1) / _STEPS, said)

    # The second time it is only read, whoever asks.
    paths = source.checkpoint.path, other.path
    pickles = "pickle" in (source.checkpoint.format, other.format)  # opened already, by leave of the command
    found: dict[str, Any] = source.once(
        ("difference", table, k, most),
        lambda: differ(*paths, table=table, k=k, most=most, allow_pickle=pickles, tell=tell),
    )
    for name in ("removed", "new"):  # their number stands beside; a list of 100,000 helps nobody
        if isinstance(listed := found["tokens"].get(name), list):
            found = found | {"tokens": found["tokens"] | {name: listed[:_MOST_NAMED], f"{name}_count": len(listed)}}
    return found
