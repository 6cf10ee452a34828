"""Write the section of the report that follows the token table: what the rows became."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from whatwhere.analysis.projection import principal_components
from whatwhere.comparison.page.answer import best_scheme
from whatwhere.comparison.page.figures import heat_map, scale_bar, token_map
from whatwhere.comparison.page.reading import AFTER, BEFORE, Results, Table
from whatwhere.comparison.page.story import number_lines, story, story_spread
from whatwhere.page.charts import mark
from whatwhere.page.markup import Markup, element, folded, join, paragraph, section, table
from whatwhere.page.wording import code, count, plain

_ROWS, _CELLS = 256, 2000  # of a large table the first rows are drawn, and its numbers stay in their file
_KINDS = ("other", "operator", "digit", "syntax")


def token_table(results: Results) -> Markup:
    """Write section 4: heat map and map of the token table before and after, the number line, the story in numbers."""
    run, tables = _chosen(results)
    told = paragraph(
        "The token table E holds one row of numbers for each token: all that the model is given about what it is. It "
        "starts as random numbers (E0) and is trained with the rest. The change E \u2212 E0 is what training wrote."
    )
    if not tables:
        note = paragraph("The trained tables are not in this folder, so there is nothing to draw.", kind="note")
        return section("tokens", "4. The token table", _seen(results, tables), told, note, *story(results))
    names = [str(name) for name in results.task["tokens"]]
    names = [_short(names[i]) if i < len(names) else str(i) for i in range(len(tables[AFTER]))]
    which = paragraph(
        "The pictures show one run: ",
        code(run["scheme"]),
        f", seed {run['seed']} (the scheme that scores best here).",
        kind="note",
    )
    return section(
        "tokens",
        "4. The token table",
        _seen(results, tables),
        told,
        which,
        *_heat_maps(tables, names),
        *_maps(tables, names, _kinds(results, names)),
        *number_lines(results),
        *story(results),
    )


def _chosen(results: Results) -> tuple[Mapping[str, Any], dict[str, Table]]:
    """Choose the run to show: the scheme that holds best, its first seed with tables on disk."""
    best = best_scheme(results)
    for run in sorted(results.runs, key=lambda run: (run["scheme"] != best, run["seed"])):
        tables = results.tables(run)
        if BEFORE in tables and AFTER in tables:
            return run, tables
    return {}, {}


def _short(name: str) -> str:
    return name if len(name) <= 12 else f"{name[:11]}\u2026"


def _kinds(results: Results, names: Sequence[str]) -> list[int]:
    groups = {str(group) for group in results.task["groups"]}
    return [
        1 if name in groups else 2 if len(name) == 1 and name in "0123456789" else 3 if name in {"(", ")", ","} else 0
        for name in names
    ]


def _seen(results: Results, tables: Mapping[str, Table]) -> Markup:
    start, end = story_spread(results, 0, "std"), story_spread(results, -1, "std")
    if start and end:
        parts = [f"Training moved the table's standard deviation from {plain(start[0])} to {plain(end[0])}"]
        opposite, line = story_spread(results, -1, "Max-Min"), story_spread(results, -1, "number line")
        if opposite:
            way = "alike" if opposite[0] > 0.3 else "opposites" if opposite[0] < -0.2 else "neither alike nor opposite"
            parts.append(f"; Max and Min ended {way} (cosine {plain(opposite[0], 2)})")
        if line:
            kind = "lie along a line" if line[0] > 0.8 else "do not lie along a line"
            parts.append(f"; what training wrote into the digits makes them {kind} in order (|r| {plain(line[0], 2)})")
        return join(*parts, f"; medians over {count(len(results.runs), 'run')}.")
    if not tables:
        return join("No trained table was found.")
    before, after = tables[BEFORE], tables[AFTER]
    moved = np.linalg.norm(after - before) / (np.linalg.norm(before) or 1.0)
    return join(
        f"Training moved the table's standard deviation from {plain(before.std())} to {plain(after.std())}; "
        f"what training wrote is {100 * moved:.0f} % as large as the table that it started from."
    )


def _heat_maps(tables: Mapping[str, Table], names: Sequence[str]) -> list[Markup]:
    before, after = tables[BEFORE], tables[AFTER]
    shown = {
        "Before training (E0)": before,
        "After training (E)": after,
        "What training wrote (E \u2212 E0)": after - before,
    }
    # The few greatest numbers would make all others pale: 1 in 200 is drawn as if it were no greater.
    limit = float(np.quantile(np.abs(np.stack(list(shown.values()))), 0.995))
    panels, numbers = [], []
    for index, (title, values) in enumerate(shown.items()):
        drawn = heat_map(
            f"heat-{index}",
            values[:_ROWS],
            ("dimension", "token id"),
            limit,
            rows=names[:_ROWS],
            texts=(
                title,
                f"{len(values)} tokens by {values.shape[1]} dimensions, standard deviation {values.std():.3f}",
            ),
        )
        caption = element("figcaption", element("b", title), f", standard deviation {plain(values.std())}")
        panels.append(element("figure", caption, element("div", drawn, class_="drawing")))
        numbers.append(_numbers(title, values, names))
    cut = f" The first {_ROWS} of {len(after)} tokens are drawn." if len(after) > _ROWS else ""
    return [
        element("h3", "Every number of the table"),
        paragraph(
            f"One line for each token, one column for each dimension; a color means the same number in all three.{cut}"
        ),
        element("div", *panels, class_="panels"),
        scale_bar("heat-key", limit, cut=True),
        folded("The numbers of these figures", *numbers),
    ]


def _numbers(title: str, values: Table, names: Sequence[str]) -> Markup:
    if values.size <= _CELLS:
        head = ["token", *(str(i) for i in range(values.shape[1]))]
        return table(
            title, head, [[name, *(plain(v, 2) for v in row)] for name, row in zip(names, values, strict=True)]
        )
    rows = [
        [
            name,
            plain(row.mean()),
            plain(row.std()),
            plain(row.min()),
            plain(row.max()),
            plain(float(np.linalg.norm(row))),
        ]
        for name, row in zip(names, values, strict=True)
    ]
    caption = f"{title}: each row in short. All {values.size:,} numbers are in the folder layers."
    return table(caption, ["token", "mean", "standard deviation", "least", "greatest", "length"], rows[:_ROWS])


def _maps(tables: Mapping[str, Table], names: Sequence[str], kinds: Sequence[int]) -> list[Markup]:
    panels, coordinates = [], []
    for index, (title, name) in enumerate((("Before training", BEFORE), ("After training", AFTER))):
        seen = principal_components(tables[name], 2)
        share = f"{100 * seen.share.sum():.0f} % of the differences between rows"
        drawn = token_map(f"map-{index}", seen.coordinates, names, kinds, texts=(f"Map of the tokens: {title}", share))
        caption = element("figcaption", element("b", title), f": the map shows {share}")
        panels.append(element("figure", caption, element("div", drawn, class_="drawing")))
        coordinates.append(seen.coordinates)
    rows = [
        [name, *(plain(float(v), 2) for v in (*first, *second))]
        for name, first, second in zip(names, *coordinates, strict=True)
    ]
    head = ["token", "before, axis 1", "before, axis 2", "after, axis 1", "after, axis 2"]
    present = sorted(set(kinds))
    items = [element("li", mark("map", kind), _KINDS[kind]) for kind in present]
    return [
        element("h3", "The tokens as points"),
        paragraph(
            "Each row of the table is a point in many dimensions. The map keeps the two directions along which the "
            "rows differ most (principal components), so near points are often alike, but not always."
        ),
        *([element("ul", *items, class_="key", aria_label="Key to the points")] if len(present) > 1 else []),
        element("div", *panels, class_="panels two"),
        folded("The numbers of these figures", table("Where each token lies on the two maps.", head, rows[:_ROWS])),
    ]
