"""What the token table is: sizes, norms, spectrum."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from jaxtyping import Float

from whatwhere.analysis.initial_scale import initial_scale
from whatwhere.analysis.spectrum import Spectrum, spectrum
from whatwhere.inspection.subject import Absent, Subject, plain
from whatwhere.interop.checkpoint.contents import Entry

_PERCENTILES = (0, 1, 5, 25, 50, 75, 95, 99, 100)
_BINS, _SHARES = 40, 64
_FEWEST = 2


def sizes(subject: Subject) -> dict[str, Any]:
    """Count parameters and bytes of the parts, and say what they are."""
    checkpoint = subject.checkpoint
    names = {
        "token table": checkpoint.token_table,
        "readout": checkpoint.readout,
        "positions": checkpoint.position_table,
        "sentence kinds": checkpoint.segment_table,
    }
    entries = {name: entry for name, entry in checkpoint.tensors.items() if not name.endswith("position_ids")}
    known = {part: entries[name] for part, name in names.items() if name in entries}
    rest = [entry for name, entry in entries.items() if name not in names.values()]
    counted = {part: [entry] for part, entry in known.items()} | {"the rest": rest}
    totals = _count(entries.values())
    parts = [
        {"part": part, "tensor": names.get(part), **_facts(part_of), **_share(_count(part_of), totals)}
        for part, part_of in counted.items()
        if part_of
    ]
    table = known.get("token table")
    words = checkpoint.words
    return plain({
        "parameters": totals[0],
        "bytes": totals[1] or None,
        "tensors": len(entries),
        "parts": parts,
        "rows": table.shape[0] if table else None,
        "dim": table.shape[1] if table else None,
        "tokens": None if words is None else len(words),
        "guessed": checkpoint.names.guessed,
        "tied": checkpoint.tied,
        "model_type": (checkpoint.config or {}).get("model_type"),
        "initial_scale": _initial(subject) if table else None,
    })  # fmt: skip


def norms(subject: Subject) -> dict[str, Any]:
    """Give the lengths of the rows: how they are spread, and by kind of token and script."""
    finite = subject.norms[np.isfinite(subject.norms)]
    if not len(finite):
        raise Absent("no row of the token table holds finite numbers")
    counts, edges = np.histogram(finite, _BINS)
    found: dict[str, Any] = {
        "rows": len(subject.norms),
        "finite": len(finite),
        "mean": finite.mean(),
        "percentiles": dict(zip(map(str, _PERCENTILES), np.percentile(finite, _PERCENTILES), strict=True)),
        "histogram": {"edges": edges, "counts": counts},
    }
    try:
        found |= {
            "by_kind": _grouped(subject.norms, subject.kinds),
            "by_script": _grouped(subject.norms, subject.scripts),
        }
    except Absent as problem:
        found["by_kind"] = found["by_script"] = {"missing": str(problem)}
    return plain(found)


def filled(subject: Subject) -> dict[str, Any]:
    """Say how the rows of the token table fill their space."""
    rows = subject.table
    if len(subject.sound) < _FEWEST:
        raise Absent("fewer than two rows of the token table hold finite numbers other than 0")
    subject.tell("finding the spectrum")
    return as_numbers(spectrum(rows if len(subject.sound) == len(rows) else rows[subject.sound], subject.seed), rows)


def as_numbers(found: Spectrum, table: Float[np.ndarray, "rows dim"]) -> dict[str, Any]:
    """Give a spectrum as JSON holds it."""
    return plain({
        "dim": table.shape[1],
        "rows": found.rows,
        "sampled": found.rows < len(table),
        "participation": found.participation,
        "for_ninety": found.for_ninety,
        "mean_cosine": found.mean_cosine,
        "mean_length": found.mean_length,
        "shares": found.shares[:_SHARES],
    })  # fmt: skip


def _count(entries: Any) -> tuple[int, int]:
    listed = list(entries)
    return sum(prod(entry.shape) for entry in listed), sum(entry.bytes for entry in listed)


def _facts(entries: Sequence[Entry]) -> dict[str, Any]:
    kinds = sorted({entry.dtype for entry in entries})
    return {"shape": list(entries[0].shape) if len(entries) == 1 else None, "dtype": ", ".join(kinds)}


def _share(count: tuple[int, int], totals: tuple[int, int]) -> Mapping[str, Any]:
    shares = [part / total if total else None for part, total in zip(count, totals, strict=True)]
    return {"parameters": count[0], "bytes": count[1] or None, "share": shares[0], "share_of_bytes": shares[1]}


def _initial(subject: Subject) -> dict[str, Any] | None:
    try:
        table, found = subject.table, subject.health
    except Absent:
        return None
    if not len(subject.sound):
        return None
    configured = (subject.checkpoint.config or {}).get("initializer_range")
    number = configured if isinstance(configured, float | int) and configured > 0 else None
    rows = table if len(subject.sound) == len(table) else table[subject.sound]
    # The nearest to the seeds alone: farther ones have been moved, if little.
    nearest = np.searchsorted(subject.sound, found.untrained[: max(8, len(found.seeds))])
    guess = initial_scale(rows, nearest, number)
    return {
        "spread": guess.spread,
        "rows": guess.rows,
        "untouched": guess.untouched,
        "rule": guess.rule,
        "expected": guess.expected,
    }


def _grouped(norms: Float[np.ndarray, " rows"], names: Sequence[str]) -> list[dict[str, Any]]:
    """Give number and percentiles of the norms of each group, the largest group first."""
    groups = np.array(names)
    found = []
    for name in sorted(set(names)):
        own = norms[(groups == name) & np.isfinite(norms)]
        if len(own):
            low, middle, high = np.percentile(own, (5, 50, 95))
            found.append({"name": name, "rows": len(own), "p5": low, "median": middle, "p95": high})
    return sorted(found, key=lambda group: -group["rows"])
