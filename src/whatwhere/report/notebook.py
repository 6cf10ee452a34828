"""What a notebook shows where a cell ends with a result: its tables and figures, by IPython's formatters.

Results are data and know nothing of pages, so IPython looks the writer up by the result's type; nothing else is loaded
before a result of that type is shown.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from math import isfinite
from typing import Any

from whatwhere.errors import MissingExtra, WhatWhereError
from whatwhere.report.html import Markup, element, folded, join, paragraph
from whatwhere.report.section import Chart, Paragraph, Part, Section

Writer = Callable[[Any], Iterable[Part | Markup]]

_WIDTH = 150  # millimeters
_DISTANCES = 64
_STYLE = Markup(
    ".whatwhere table{border-collapse:collapse;font-size:90%}.whatwhere caption{text-align:left;font-weight:600}"
    ".whatwhere th,.whatwhere td{text-align:left;padding:.15em .7em;border-bottom:1px solid #8884}"
    ".whatwhere td.number{text-align:right;font-variant-numeric:tabular-nums}.whatwhere svg{background:#fff}"
)


def register(shell: Any) -> None:
    """Register the writers with a shell of IPython, whose results show tables and figures from then on.

    Args:
        shell: of IPython, as `%load_ext whatwhere` passes it.
    """
    formatter = shell.display_formatter.formatters["text/html"]
    for module, name in WRITERS:
        formatter.for_type_by_name(f"whatwhere.{module}", name, to_html)


def to_html(result: object) -> str | None:
    """Return a result as HTML, in which every text is escaped; None where it has no tables or figures."""
    writer = _writer(type(result))
    if writer is None:
        return None
    try:
        written = [each if isinstance(each, Markup) else _part(each) for each in writer(result)]
    except WhatWhereError:  # such as a learned table with too few rows: the text is shown instead
        return None
    return element("div", element("style", _STYLE), *written, class_="whatwhere") if written else None


def _writer(kind: type) -> Writer | None:
    names = ((each.__module__.removeprefix("whatwhere."), each.__name__) for each in kind.__mro__)
    return next((WRITERS[name] for name in names if name in WRITERS), None)


def _part(part: Part) -> Markup:
    if isinstance(part, Paragraph):
        return paragraph(part.text)
    if isinstance(part, Chart):
        return join(*_chart(part))
    return folded(part)


def _chart(chart: Chart) -> Iterable[Markup]:
    from whatwhere.report.figures import Curve, LineFigure

    yield from map(paragraph, filter(None, (chart.note, chart.method)))
    if chart.kind == "lines" and not chart.log_x:
        curves = [Curve(each.name, _finite(each.values), look=each.look) for each in chart.series]
        yield _figure(LineFigure("chart", chart.title, chart.x_label, chart.y_label, chart.x, curves))
    yield folded(chart.table)


def _finite(values: Sequence[float]) -> list[float | None]:
    return [value if isfinite(value) else None for value in values]


def _figure(figure: Any) -> Markup:
    from whatwhere.report.figures import to_file

    try:
        svg = to_file(figure, "svg", _WIDTH).decode("utf-8")
    except MissingExtra as problem:
        return paragraph(str(problem))
    return Markup(svg[svg.index("<svg") :])


def _of_sections(sections: Iterable[Section]) -> Iterable[Part | Markup]:
    for section in sections:
        yield element("h4", section.title)
        yield from section.parts


def _comparison(results: Any) -> Iterable[Part | Markup]:
    from whatwhere.comparison.statistics import PairedDifferences, paired_differences
    from whatwhere.report.comparison import summary
    from whatwhere.report.comparison_conclusions import headline, last_length, scope_sentence, table
    from whatwhere.report.paper import figures

    found = paired_differences(results, last_length(results))
    yield Paragraph(headline(results, found))
    yield summary(results)
    for figure in figures(results):
        if figure.name in ("scores", "shift"):  # those of groups are files, by whatwhere figures
            yield element("h4", figure.title)
            yield _figure(figure)
    if isinstance(found, PairedDifferences) and found.pairs:
        yield table(results, found)
    yield Paragraph(scope_sentence(results))


def _with_headline(module: str) -> Writer:
    def write(result: Any) -> Iterable[Part | Markup]:
        texts = import_module(f"whatwhere.report.{module}")
        yield Paragraph(f"{texts.headline(result)}.")
        yield from _of_sections(texts.sections(result))

    return write


def _encoding(scheme: Any) -> Iterable[Part | Markup]:
    """Show how similar, or how favored, two tokens are by their distance."""
    from whatwhere.analysis.position_similarity import by_distance
    from whatwhere.report.figures import Curve, LineFigure
    from whatwhere.where.binding import Where

    where = scheme if isinstance(scheme, Where) else Where(scheme)
    rows = min(_DISTANCES, getattr(where.input, "max_length", None) or _DISTANCES)
    found = by_distance(where, rows)
    yield element("pre", repr(scheme))
    if found is not None:
        curves = [Curve(name, _finite(values.detach().cpu().tolist())) for name, values in found.curves.items()]
        yield _figure(LineFigure("scheme", found.label, "distance in tokens", found.label, range(rows), curves))


def _walkthrough(steps: Any) -> Iterable[Part | Markup]:
    from whatwhere.report.section import Table
    from whatwhere.report.text import decimals

    names = [f"#{number}" for number in steps.ids] if steps.tokens is None else steps.tokens
    columns = ["token", "id", "position", *(f"x{n}" for n in range(min(_COLUMNS, steps.vectors.shape[1])))]
    rows = [
        [names[n], str(number), str(n), *(decimals(value) for value in steps.vectors[n, :_COLUMNS].tolist())]
        for n, number in enumerate(steps.ids)
    ]
    caption = f"Input of the first block with {steps.scheme}: {len(rows)} tokens × {steps.vectors.shape[1]}"
    yield Table(caption, columns, rows, range(1, len(columns)))
    yield from map(Paragraph, steps.notes)


def _map(found: Any) -> Iterable[Part | Markup]:
    from whatwhere.report.html import scatter
    from whatwhere.report.text import percent

    points, kept = found.coordinates, found.kept
    share, chance = percent(kept.share), percent(kept.chance)
    text = f"It keeps {share} of the {kept.k} nearest neighbors; chance would keep {chance}."
    yield scatter(points, [""] * len(points), ["token"] * len(points), f"Token map by {found.method}", [text])


def _laws(report: Any) -> Iterable[Part | Markup]:
    yield element("pre", str(report))


def _parameters(counted: Any) -> Iterable[Part | Markup]:
    from whatwhere.report.section import Table

    rows = [[name.replace("_", " "), f"{value:,}"] for name, value in {**vars(counted), "all": counted.total}.items()]
    yield Table("Parameters of the input layer", ["table", "parameters"], rows, [1])


def _named(module: str, function: str) -> Writer:
    """Return a writer of sections or parts that is loaded when it is used."""

    def write(result: Any) -> Iterable[Part | Markup]:
        written = getattr(import_module(f"whatwhere.report.{module}"), function)(result)
        return [part for each in written for part in (_of_sections([each]) if isinstance(each, Section) else [each])]

    return write


_COLUMNS = 8
WRITERS: Mapping[tuple[str, str], Writer] = {
    ("comparison.read", "Comparison"): _comparison,
    ("comparison.answers", "Answers"): _named("answers", "sections"),
    ("analysis.inspection", "Inspection"): _with_headline("inspection"),
    ("analysis.token_table", "Sizes"): _named("inspection", "sizes"),
    ("analysis.token_table", "Norms"): _named("inspection", "norms"),
    ("analysis.pca", "Spectrum"): _named("inspection", "spectrum"),
    ("analysis.token_tables", "SiblingTables"): _named("token_tables", "token_tables"),
    ("analysis.token_tables", "NGramOccupancy"): _named("token_tables", "occupancy"),
    ("analysis.added_positions", "InputVariance"): _named("inspection", "variance"),
    ("analysis.added_positions", "PositionTable"): _named("positions", "positions"),
    ("analysis.rotary", "RotaryReport"): _named("positions", "rotary"),
    ("analysis.biases", "BiasReport"): _named("positions", "biases"),
    ("analysis.token_diagnostics", "TokenDiagnostics"): _named("diagnostics", "diagnostics"),
    ("analysis.checkpoint_difference", "Difference"): _with_headline("difference"),
    ("analysis.token_neighbors", "SearchedTable"): _named("neighbors", "parts"),
    ("models.surgery.report", "Report"): _named("surgery", "sections"),
    ("models.parameter_count", "InputParameters"): _parameters,
    ("analysis.walkthrough", "Walkthrough"): _walkthrough,
    ("analysis.token_map", "TokenMap"): _map,
    ("testing.report", "Report"): _laws,
    ("where.binding", "Where"): _encoding,
    ("where.base", "InputEncoding"): _encoding,
    ("where.base", "QueryKeyMap"): _encoding,
    ("where.score_bias", "ScoreBias"): _encoding,
}
"""What is shown of a result, by the module and name of its type, or of the type that it extends."""
