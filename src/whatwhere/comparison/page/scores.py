"""Write the section of the report that holds scores by length, together and by group."""

import math
from collections.abc import Sequence

from whatwhere.comparison.page.answer import ranking
from whatwhere.comparison.page.baselines import Baselines, near, read_baselines, told
from whatwhere.comparison.page.charts import Chart, Scale, score_chart
from whatwhere.comparison.page.reading import Results, Spread
from whatwhere.comparison.page.wording import measure, score_cell, score_text, spread_of
from whatwhere.page.charts import swatch
from whatwhere.page.markup import Markup, element, folded, join, paragraph, section, table, text_of
from whatwhere.page.wording import code


def accuracy(results: Results) -> Markup:
    """Write section 2: scores by length and scheme, together and by group."""
    unit = str(results.task["unit"])
    places: list[int | None] = [*results.trained] if results.trained else [None]
    places += results.beyond
    series = [[results.score(scheme, place) for place in places] for scheme in results.schemes]
    seen, baselines = scores_seen(results), read_baselines(results, places)
    chart = Chart(
        categories=["in length" if place is None else str(place) for place in places],
        series=series,
        scale=scale(results),
        axis=unit,
        trained=len(results.trained) or 1,
        baselines=near(baselines, series, results.percent),
        texts=(f"{results.task['measure']} by length and scheme", text_of(seen)),
    )
    guesses = [
        [name, *("" if v is None else score_cell(results, (v, v, v)) for v in line)] for name, line in baselines.items()
    ]
    rows = score_rows(results, series) + guesses
    return section(
        "accuracy",
        f"2. {str(results.task['measure']).capitalize()} by length and scheme",
        seen,
        key(results, "accuracy"),
        two_widths("accuracy-chart", chart),
        _legend(chart, baselines),
        folded(
            "The numbers of this figure",
            table(f"By {unit}: {measure(results)}.", ["scheme", *chart.categories], rows),
        ),
        *_groups(results, chart.trained if results.trained else 0),
    )


def key(results: Results, name: str) -> Markup:
    """Explain the lines: one sign for each scheme, the same on the whole page."""
    items = [element("li", swatch(name, i), code(scheme)) for i, scheme in enumerate(results.schemes)]
    return element("ul", *items, class_="key", aria_label="Key to the lines")


def two_widths(name: str, chart: Chart) -> Markup:
    """Draw a chart for wide and for narrow screens: one drawing, shrunk, would have letters too small to read."""
    wide = element("div", score_chart(name, chart, wide=True), class_="drawing wide")
    narrow = element("div", score_chart(f"{name}-narrow", chart), class_="drawing narrow")
    return element("figure", wide, narrow)


def score_rows(results: Results, series: Sequence[Sequence[Spread | None]]) -> list[list[str]]:
    """Write the rows of a table of scores, one for each scheme."""
    named = zip(results.schemes, series, strict=True)
    return [[code(scheme), *(score_cell(results, found) for found in line)] for scheme, line in named]


def scale(results: Results) -> Scale:
    """Choose the upright axis of charts of scores."""
    if results.percent:
        return Scale("accuracy, %", 100.0, (0.0, 100.0))
    return Scale(str(results.task["measure"]))


def _legend(chart: Chart, baselines: Baselines) -> Markup:
    parts = [
        "Shaded: the trained lengths. Points are medians over seeds, upright bars reach from the least seed to the "
        "greatest. The lengths are evenly spaced along the axis."
    ]
    parts += told(baselines, chart.baselines)
    if any(found is None for line in chart.series for found in line):
        parts.append(" On the line \u201cno row\u201d: a learned table has no row for these positions.")
    return paragraph(*parts, kind="note")


def scores_seen(results: Results) -> Markup:
    """Say between which scores the schemes lie, and where seeds disagree most."""
    parts: list[str] = []
    inside = ranking(results, None)
    if inside:
        low, high = (score_text(results, end) for end in sorted((inside[0][1], inside[-1][1])))
        between = f"the medians lie between {low} and {high}" if low != high else f"every median is {low}"
        parts.append(f"In length {between}")
    if results.beyond:
        outside = ranking(results, results.beyond[-1])
        if outside:
            least, most = sorted((outside[0], outside[-1]), key=lambda pair: pair[1])
            ends = [join(score_text(results, score), " (", code(scheme), ")") for scheme, score in (least, most)]
            parts += [f"{'; at' if parts else 'At'} {results.beyond[-1]} {results.task['unit']} "]
            parts += ["between ", ends[0], " and ", ends[1]] if len(outside) > 1 else ["it is ", ends[0]]
        parts += _widest(results)
    return join(*parts, "." if parts else "No score is finite.")


def _widest(results: Results) -> list[str]:
    """Say where seeds disagree most: one seed would have told another story there."""
    places = [
        (scheme, length, results.score(scheme, length)) for scheme in results.schemes for length in results.beyond
    ]
    found = [(s[2] - s[1], scheme, length, s) for scheme, length, s in places if s and math.isfinite(s[2] - s[1])]
    if not found or max(found)[0] == 0:
        return []
    _, scheme, length, (_, least, greatest) = max(found)
    return [
        "; seeds differ most for ",
        code(scheme),
        f" at {length}: {score_text(results, least)} to {score_text(results, greatest)}",
    ]


def _groups(results: Results, trained: int) -> list[Markup]:
    """Draw each group by itself, the one that breaks first at the front."""
    groups = [str(group) for group in results.task["groups"]]
    if not groups or not results.beyond:
        return []
    order, seen = _first_to_break(results, groups)
    places = [*results.trained, *results.beyond]
    panels, rows = [], []
    for index, group in enumerate(order):
        series = [[results.score(scheme, place, group) for place in places] for scheme in results.schemes]
        texts = (f"{group}: {results.task['measure']} by length and scheme", text_of(seen))
        labels = [str(place) for place in places]
        chart = Chart(labels, series, scale(results), str(results.task["unit"]), trained=trained, texts=texts)
        drawn = element("div", score_chart(f"group-{index}", chart), class_="drawing")
        panels.append(element("figure", element("figcaption", element("b", group)), drawn))
        rows += [[join(element("span", group), ", ", row[0]), *row[1:]] for row in score_rows(results, series)]
    caption = f"By group, scheme and {results.task['unit']}: {measure(results)}."
    numbers = table(caption, ["group, scheme", *(str(place) for place in places)], rows)
    return [
        element("h3", "Each operator by itself" if results.task["name"] == "expressions" else "Each group by itself"),
        paragraph(seen),
        element("div", *panels, class_="panels"),
        folded("The numbers of these figures", numbers),
    ]


def _first_to_break(results: Results, groups: list[str]) -> tuple[list[str], Markup]:
    """Order the groups as they fall at the first length where they differ, and say which falls first."""
    sign = 1.0 if results.higher else -1.0
    for length in results.beyond:
        found = {g: s[0] for g in groups if (s := spread_of(_medians(results, g, length))) is not None}
        order = sorted(found, key=lambda group: sign * found[group])
        if len(found) > 1 and abs(found[order[0]] - found[order[-1]]) >= 0.05:
            first, last = (score_text(results, found[order[end]]) for end in (0, -1))
            unit = results.task["unit"]
            at = f" breaks first: at {length} {unit} the median over all schemes is {first}, against {last}"
            rest = [group for group in groups if group not in found]
            return order + rest, join(element("b", order[0]), at, " for ", element("b", order[-1]), ".")
    if len(groups) == 1:
        return groups, join("The same scores for a part of each input: ", element("b", groups[0]), ".")
    close = "5 points" if results.percent else f"0.05 {results.task['measure']}"
    return groups, join(f"None breaks before the others: their medians over all schemes stay within {close}.")


def _medians(results: Results, group: str, length: int) -> list[float]:
    found = [results.score(scheme, length, group) for scheme in results.schemes]
    return [s[0] for s in found if s is not None and math.isfinite(s[0])]
