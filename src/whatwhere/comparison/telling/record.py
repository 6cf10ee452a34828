"""Tell how the tutorials' claims fared, and what it takes to repeat the run."""

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from whatwhere.comparison.reading import Results
from whatwhere.comparison.telling.wording import listed, named
from whatwhere.page.markup import visible
from whatwhere.page.wording import count

_VERBS = {  # for one claim, for several
    "holds": ("holds", "hold"),
    "fails": ("fails", "fail"),
    "depends": ("depends", "depend"),
    "not measured": ("was not measured", "were not measured"),
}


def verdicts_seen(results: Results) -> str:
    """Say how many of the tutorial's claims hold in this run."""
    found = Counter(str(verdict["verdict"]) for verdict in results.data["verdicts"])
    if not found:
        return f"The task {named(str(results.task['name']))} has no tutorial whose claims this run could judge."
    words = [f"{found[word]} {_VERBS[word][found[word] > 1]}" for word in _VERBS if found[word]]
    claims = count(found.total(), "claim")
    return f"Of {claims} of the tutorial, {listed(words or ['none was judged'])} in this run."


def record_seen(results: Results) -> str:
    """Say how long the runs took, where, and with what."""
    data, machine = results.data, results.data["machine"]
    cores = count(int(machine.get("cores") or 0), "core")
    versions = [f"{name} {named(str(data['versions'].get(name, '?')))}" for name in ("whatwhere", "torch")]
    return (
        f"{count(len(results.runs), 'run')} took {_duration(float(data.get('seconds') or 0))} on {cores} of "
        f"{named(str(machine.get('processor') or 'an unnamed processor'))}, with {listed(versions)}."
    )


def made(results: Results) -> list[tuple[str, str]]:
    """List versions, machine and settings."""
    data = results.data
    values = {
        **{f"version of {name}": value for name, value in data["versions"].items()},
        **data["machine"],
        "written": data.get("created"),
        "seconds": data.get("seconds"),
        **dict(sorted(data["settings"].items())),
    }
    return [(str(name), _value(value)) for name, value in values.items()]


RUNS = ("run", "steps", "seconds", "last loss", "parameters", "of tokens", "of positions", "trained input layer")


def runs(results: Results) -> list[list[str]]:
    """Write one row of cells for each run, under RUNS."""
    rows = []
    for run in results.runs:
        losses = run.get("losses") or []
        last = f"{losses[-1][1]:.4f}" if losses and losses[-1][1] is not None else "–"
        steps, seconds = str(run.get("steps", "–")), f"{float(run.get('seconds') or 0):.1f}"
        parameters = run.get("parameters") or {}
        counts = [_value(parameters.get(part)) for part in ("total", "tokens", "positions")]
        name, file = f"{named(str(run['scheme']))}, seed {run['seed']}", visible(str(run["file"]))
        rows.append([name, steps, seconds, last, *counts, file])
    return rows


def _value(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and not any(isinstance(part, list | Mapping) for part in value):
        return ", ".join(_value(part) for part in value)
    return "–" if value is None else json.dumps(value, ensure_ascii=False)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.0f} s"
