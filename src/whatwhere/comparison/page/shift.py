"""Write the section of the report that holds the shift test."""

from whatwhere.comparison.page.charts import Chart
from whatwhere.comparison.page.reading import Results, Spread
from whatwhere.comparison.page.scores import key, scale, score_rows, two_widths
from whatwhere.comparison.page.wording import NO_ROW, measure, score_text
from whatwhere.page.markup import Markup, element, folded, join, paragraph, section, table, text_of
from whatwhere.page.wording import code, listed, small

_STILL = 1e-3  # logits are of order 1 to 10 in float32: rounding moves them by 1e-5, a moved position by 0.1 and more
_TITLE = "3. The shift test"


def shift_test(results: Results) -> Markup:
    """Write section 3: the same inputs with every position moved."""
    length = results.task.get("shift_length")
    inputs = "new inputs of a trained length" if length is None else f"new inputs of {length} {results.task['unit']}"
    told = paragraph(
        f"The same {inputs} are read again, with every position moved by the same amount: the first token stands there "
        "instead of at 0. Nothing else changes. A scheme that looks at distances alone must give the same answers, up "
        "to rounding."
    )
    if not results.shifts:
        return section("shift", _TITLE, join("This run has no shift test."), told)
    series = [[results.shift(scheme, s, "score") for s in results.shifts] for scheme in results.schemes]
    seen = shift_seen(results)
    labels = [str(shift) for shift in results.shifts]
    chart = Chart(labels, series, scale(results), "every position moved by", texts=("Score by shift", text_of(seen)))
    changes = [
        [code(name), *(_change(results.shift(name, shift, "largest_logit_change")) for shift in results.shifts)]
        for name in results.schemes
    ]
    caption = (
        "Largest change of any logit (the model's raw output) by shift: median over seeds, least and greatest below. "
        "Rounding alone gives about 0.00001."
    )
    numbers = table(f"By shift: {measure(results)}.", ["scheme", *labels], score_rows(results, series))
    return section(
        "shift",
        _TITLE,
        seen,
        told,
        key(results, "shift"),
        two_widths("shift-chart", chart),
        folded("The numbers of this figure", numbers),
        table(caption, ["scheme", *labels], changes),
    )


def _change(found: Spread | None) -> Markup:
    if found is None:
        return NO_ROW
    middle, least, greatest = (small(value) for value in found)
    return middle if least == greatest else join(middle, element("small", least, " to "), element("small", greatest))


def shift_seen(results: Results) -> Markup:
    """Say which schemes stay still when every position moves, and what the move costs others."""
    still, kept, moved, absent = [], [], [], []
    first = next((s for s in results.shifts if s > 0), 0)
    for scheme in results.schemes:
        changes = [results.shift(scheme, s, "largest_logit_change") for s in results.shifts]
        before, after = results.shift(scheme, 0, "score"), results.shift(scheme, first, "score")
        if all(c is not None and c[2] < _STILL for c in changes):
            still.append(code(scheme))
        elif before is None or after is None:
            absent.append(code(scheme))
        elif abs(before[0] - after[0]) < 0.005:
            kept.append(code(scheme))
        else:
            moved.append(
                join(code(scheme), f" from {score_text(results, before[0])} to {score_text(results, after[0])}")
            )
    parts: list[Markup] = []
    if still:
        parts.append(
            join(listed(still), f" {'does' if len(still) == 1 else 'do'} not change when every position moves")
        )
    if moved:
        parts.append(join(f"a move of {first} takes ", listed(moved)))
    if kept:
        parts.append(join(listed(kept), f" {'keeps its score' if len(kept) == 1 else 'keep their scores'} at {first}"))
    if absent:
        parts.append(join(listed(absent), f" {'has' if len(absent) == 1 else 'have'} no row to move to"))
    whole = join(*(piece for part in parts for piece in (part, "; ")))[: -len("; ")]
    return Markup(f"{whole[:1].upper()}{whole[1:]}.") if not whole.startswith("<") else Markup(f"{whole}.")
