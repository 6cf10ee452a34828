"""Write the first section of the report: the question, and what this run answers."""

import math

from whatwhere.comparison.page.reading import Results, spread
from whatwhere.comparison.page.wording import NO_ROW, measure, run_of, score_cell, score_text, spread_cell
from whatwhere.page.markup import Markup, element, join, paragraph, section, table
from whatwhere.page.wording import code, count, listed, plain

_HOLDS = (
    0.05  # a scheme holds at a length where it loses at most 5 points (or 0.05 of another unit) of its score in length
)
_TASKS = {
    "expressions": "The task is to read an expression such as Max(1,6,2) and to give its answer, one digit.",
    "recall": "The task is to look back in a sequence of letters and to say which letter followed a given one.",
    "text": "The task is to predict the next byte of a text.",
}


def ranking(results: Results, length: int | None) -> list[tuple[str, float]]:
    """Order the schemes that have a score at this length, the best first."""
    found = [(scheme, results.score(scheme, length)) for scheme in results.schemes]
    medians = [(scheme, s[0]) for scheme, s in found if s is not None and math.isfinite(s[0])]
    return sorted(medians, key=lambda pair: -pair[1] if results.higher else pair[1])


def best_scheme(results: Results) -> str:
    """Name the scheme that holds best at the longest tested length."""
    order = ranking(results, results.beyond[-1] if results.beyond else None) or ranking(results, None)
    return order[0][0] if order else results.schemes[0]


def answer(results: Results) -> Markup:
    """Write section 1: the question, and what this run answers."""
    task, unit = results.task, results.task["unit"]
    seeds = len({run["seed"] for run in results.runs})
    told = paragraph(
        "A Transformer reads tokens as vectors. A vector says what a token is, not where it stands. A scheme is one "
        f"way of saying where. {_TASKS.get(str(task['name']), '')} Every scheme was trained on short inputs "
        f"({run_of(task['trained'])} {unit}) and then tested on longer ones. ",
        "In length means new inputs of the trained lengths; beyond means longer ones. ",
        f"A scheme holds where it loses at most {'5 points' if results.percent else '0.05'} of its score in length.",
    )
    spread_told = (
        f"Each number is the median over {seeds} seeds, with the least and the greatest below it. "
        if seeds > 1
        else "Each number comes from a single seed, so chance has a part in it. "
    )
    caution = "With fewer than five seeds an order of schemes is a lead, not a proof." if seeds < 5 else ""
    return section(
        "answer",
        "1. The question, and what this run answers",
        answer_seen(results),
        told,
        _answer_table(results),
        paragraph(spread_told, caution, kind="note"),
    )


def answer_seen(results: Results) -> Markup:
    """Say which scheme holds best, and where."""
    last = results.beyond[-1] if results.beyond else None
    order = ranking(results, last)
    if not order:
        return join("No scheme has a finite score at the longest tested length.")
    where = "in length" if last is None else f"at {last} {results.task['unit']}"
    (best, high), (worst, low) = order[0], order[-1]
    parts = _best_words(results, best, high, where)
    if worst != best:
        parts += ["; ", code(worst), f" scores worst: {score_text(results, low)}"]
    absent = [code(s) for s in results.schemes if results.score(s, last) is None]
    if absent:
        parts += ["; ", listed(absent), f" {'has' if len(absent) == 1 else 'have'} no row there"]
    held = _held(results)
    if 0 < len(held) < len(results.beyond):
        longest = [code(scheme) for scheme in held[-1]]
        parts += [". Longest to hold: ", listed(longest), f", to {results.beyond[len(held) - 1]}"]
    elif results.beyond and not held:
        parts += [f". None holds even at {results.beyond[0]}"]
    return join(*parts, ".")


def _held(results: Results) -> list[list[str]]:
    """Name, for each length up to the last at which any scheme still holds, those that held so far, best first."""
    names: list[list[str]] = []
    for length in results.beyond:
        order = [scheme for scheme, score in ranking(results, length) if _holds(results, scheme, score)]
        still = [scheme for scheme in order if not names or scheme in names[-1]]
        if not still:
            break
        names.append(still)
    return names


def _holds(results: Results, scheme: str, score: float) -> bool:
    inside = results.score(scheme, None)
    return inside is not None and (inside[0] - score) * (1.0 if results.higher else -1.0) <= _HOLDS


def _best_words(results: Results, best: str, score: float, where: str) -> list[str]:
    """Say which scheme is best, and whether it holds: whether it scores nearly as well as within the trained length."""
    inside, told = results.score(best, None), score_text(results, score, unit=True)
    number = count(len(results.schemes), "scheme")
    if inside is None or where == "in length":
        return ["Of ", number, ", ", code(best), f" scores best {where}: {told}"]
    told += f" (in length {score_text(results, inside[0])})"
    if _holds(results, best, score):
        return ["Of ", number, ", ", code(best), f" holds best {where}: {told}"]
    if len(results.schemes) == 1:
        return [code(best), f" does not hold {where}: {told}"]
    return [f"No scheme holds {where}; of ", number, ", ", code(best), f" scores best there: {told}"]


def _answer_table(results: Results) -> Markup:
    unit = results.task["unit"]
    head = ["scheme", "in length", *(f"at {length}" for length in results.beyond)]
    head += ["moved by 1"] if 1 in results.shifts else []
    head += ["parameters", "ms per step"]
    rows = []
    for scheme in results.schemes:
        summary = results.data["summary"][scheme]
        row: list[str] = [code(scheme), score_cell(results, results.score(scheme, None))]
        row += [score_cell(results, results.score(scheme, length)) for length in results.beyond]
        row += [_moved_cell(results, scheme)] if 1 in results.shifts else []
        positions = f"{summary['parameters']['positions']:,} for position"
        row += [join(f"{summary['parameters']['total']:,}", element("small", positions))]
        row += [spread_cell(spread(summary["seconds_per_step"]), 1000.0, 1)]
        rows.append(row)
    length = results.task.get("shift_length")
    inputs = "inputs of a trained length" if length is None else f"inputs of {length} {unit}"
    moved = f" Moved by 1: median for {inputs} with every position one higher." if 1 in results.shifts else ""
    absent = any(results.score(scheme, length) is None for scheme in results.schemes for length in results.beyond)
    missing = " No row: a learned table has no row for a position beyond its last." if absent else ""
    caption = f"Scores: {measure(results)}; the columns \u201cat\u201d are lengths in {unit}.{missing}{moved}"
    return table(caption, head, rows)


def _moved_cell(results: Results, scheme: str) -> Markup:
    """Write the score of moved inputs above that of the same inputs unmoved: the score in length has others."""
    moved, unmoved = (results.shift(scheme, shift, "score") for shift in (1, 0))
    if moved is None:
        return NO_ROW
    factor, digits = (100.0, 1) if results.percent else (1.0, 3)
    parts = [plain(moved[0] * factor, digits)]
    if unmoved is not None:
        parts.append(element("small", f"unmoved {plain(unmoved[0] * factor, digits)}"))
    return join(*parts)
