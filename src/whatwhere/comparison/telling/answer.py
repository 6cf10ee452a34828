"""Say what a comparison answers: which scheme holds beyond the trained length, and how far."""

import math

from whatwhere.comparison.reading import Results
from whatwhere.comparison.telling.wording import listed, run_of, scheme_named, score_text, unit_of
from whatwhere.page.wording import count

_HOLDS = (
    0.05  # a scheme holds at a length where it loses at most 5 points (or 0.05 of another unit) of its score in length
)
_TASKS = {
    "expressions": "The task is to read an expression such as Max(1,6,2) and to give its answer, one digit. ",
    "recall": "The task is to look back in a sequence of letters and to say which letter followed a given one. ",
    "text": "The task is to predict the next byte of a text. ",
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


def question(results: Results) -> str:
    """Say what was asked, and what the words of the answer mean."""
    seeds = len({run["seed"] for run in results.runs})
    told = (
        "A Transformer reads tokens as vectors. A vector says what a token is, not where it stands. A scheme is one "
        f"way of saying where. {_TASKS.get(str(results.task['name']), '')}Every scheme was trained on short inputs "
        f"({run_of(results.task['trained'])} {unit_of(results)}) and then tested on longer ones. In length means new "
        "inputs of the trained lengths; beyond means longer ones. A scheme holds where it loses at most "
        f"{'5 points' if results.percent else '0.05'} of its score in length. "
    )
    told += (
        f"Each number is the median over {seeds} seeds, with the least and the greatest. "
        if seeds > 1
        else "Each number comes from a single seed, so chance has a part in it. "
    )
    return told + ("With fewer than five seeds an order of schemes is a lead, not a proof." if seeds < 5 else "")


def answer_seen(results: Results) -> str:
    """Say which scheme holds best, and where."""
    last = results.beyond[-1] if results.beyond else None
    order = ranking(results, last)
    if not order:
        return "No scheme has a finite score at the longest tested length."
    where = "in length" if last is None else f"at {last} {unit_of(results)}"
    (best, high), (worst, low) = order[0], order[-1]
    said = _best_words(results, best, high, where)
    if worst != best:
        said += f"; {scheme_named(worst)} scores worst: {score_text(results, low)}"
    if absent := [scheme_named(scheme) for scheme in results.schemes if results.score(scheme, last) is None]:
        said += f"; {listed(absent)} {'has' if len(absent) == 1 else 'have'} no row there"
    held = _held(results)
    if 0 < len(held) < len(results.beyond):
        longest = listed([scheme_named(scheme) for scheme in held[-1]])
        said += f". Longest to hold: {longest}, to {results.beyond[len(held) - 1]}"
    elif results.beyond and not held:
        said += f". Not one holds even at {results.beyond[0]}"
    return f"{said}."


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


def _best_words(results: Results, best: str, score: float, where: str) -> str:
    """Say which scheme is best, and whether it holds: whether it scores nearly as well as within the trained length."""
    inside, told = results.score(best, None), score_text(results, score, unit=True)
    number, name = count(len(results.schemes), "scheme"), scheme_named(best)
    if inside is None or where == "in length":
        return f"Of {number}, {name} scores best {where}: {told}"
    told += f" (in length {score_text(results, inside[0])})"
    if _holds(results, best, score):
        return f"Of {number}, {name} holds best {where}: {told}"
    if len(results.schemes) == 1:
        return f"{name} does not hold {where}: {told}"
    return f"No scheme holds {where}; of {number}, {name} scores best there: {told}"
