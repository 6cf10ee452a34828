"""Write the last sections of the report: the verdicts, and what it takes to repeat the run."""

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from whatwhere.comparison.page.reading import Results
from whatwhere.page.markup import Markup, element, folded, join, paragraph, section, table
from whatwhere.page.wording import code, count, listed

_SIGNS = {"holds": "✓", "fails": "✗", "depends": "≈", "not measured": "–"}  # a second channel beside the color
_VERBS = {  # for one claim, for several
    "holds": ("holds", "hold"),
    "fails": ("fails", "fail"),
    "depends": ("depends", "depend"),
    "not measured": ("was not measured", "were not measured"),
}


def verdicts(results: Results) -> Markup:
    """Write section 7: each claim beside what was measured."""
    rows = []
    for verdict in results.data["verdicts"]:
        word = str(verdict["verdict"])
        kind = word if word in {"holds", "fails", "depends"} else "unknown"
        sign = element("span", f"{_SIGNS.get(word, '–')} {word}", class_=f"word {kind}")
        rows.append(
            [str(verdict["claim"]), str(verdict["claimed"]), str(verdict["measured"]), sign, str(verdict["why"])]
        )
    if not rows:
        seen = join(f"The task {results.task['name']!s} has no tutorial whose claims this run could judge.")
        return section("verdicts", "7. Verdicts", seen)
    found = Counter(str(verdict["verdict"]) for verdict in results.data["verdicts"])
    words = [f"{found[word]} {_VERBS[word][found[word] > 1]}" for word in _VERBS if found[word]]
    seen = join(
        f"Of {count(len(rows), 'claim')} of the tutorial, ", listed(words or ["none was judged"]), " in this run."
    )
    head = ["the tutorial says", "its number", "measured here", "verdict", "why"]
    return section(
        "verdicts", "7. Verdicts", seen, table("Each claim beside what this run measured.", head, rows, "words")
    )


def record(results: Results) -> Markup:
    """Write section 8: settings, machine, versions, and the command that repeats the run."""
    data, machine = results.data, results.data["machine"]
    cores = count(int(machine.get("cores") or 0), "core")
    seen = join(
        f"{count(len(results.runs), 'run')} took {_duration(float(data.get('seconds') or 0))} on {cores} of ",
        str(machine.get("processor") or "an unnamed processor"),
        f", with whatwhere {data['versions'].get('whatwhere', '?')} and torch {data['versions'].get('torch', '?')}.",
    )
    again = element("pre", element("code", str(data.get("command") or "")))
    rows = [[name, _value(value)] for name, value in sorted(data["settings"].items())]
    made = {**{f"version of {n}": v for n, v in data["versions"].items()}, **machine, "written": data.get("created")}
    return section(
        "record",
        "8. Settings, machine, and how to repeat it",
        seen,
        paragraph(
            "The same command, versions, number of threads and way of multiplying (products, among the settings) "
            "give the same numbers on the same machine:"
        ),
        again,
        table(
            "Where and with what this was run.",
            ["what", "value"],
            [[name, _value(v)] for name, v in made.items()],
            "words",
        ),
        folded("Every setting", table("The settings of this run.", ["setting", "value"], rows, "words")),
        folded("Every run", _runs(results)),
    )


def _runs(results: Results) -> Markup:
    rows = []
    for run in results.runs:
        losses = run.get("losses") or []
        last = f"{losses[-1][1]:.4f}" if losses and losses[-1][1] is not None else "–"
        steps, seconds = str(run.get("steps", "–")), f"{float(run.get('seconds') or 0):.1f}"
        parameters = run.get("parameters") or {}
        counts = [_value(parameters.get(part)) for part in ("total", "tokens", "positions")]
        name = join(code(str(run["scheme"])), f", seed {run['seed']}")
        rows.append([name, steps, seconds, last, *counts, code(str(run["file"]))])
    head = ["run", "steps", "seconds", "last loss", "parameters", "of tokens", "of positions", "trained input layer"]
    return table("One line for each run.", head, rows)


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
