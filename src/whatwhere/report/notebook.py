"""What a notebook shows where a cell ends with a result: its tables and figures, by IPython's formatters.

Results are data and know nothing of pages, so IPython looks the writer up by the result's type; nothing else is loaded
before a result of that type is shown.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any

from whatwhere.errors import MissingExtra, WhatWhereError
from whatwhere.report.html import Markup, element, paragraph, written_part
from whatwhere.report.section import Chart, Part, Section, Series, Table

Writer = Callable[[Any], Iterable[Section | Part]]

_WIDTH = 150  # millimeters
_DISTANCES = 64
_STYLE = Markup(
    ".whatwhere table{border-collapse:collapse;font-size:90%}.whatwhere caption{text-align:left;font-weight:600}"
    ".whatwhere th,.whatwhere td{text-align:left;padding:.15em .7em;border-bottom:1px solid #8884}"
    ".whatwhere td.number{text-align:right;font-variant-numeric:tabular-nums}.whatwhere svg{background:#fff}"
)


def register(shell: Any) -> None:
    """Register the writers with a shell of IPython, whose results show tables and figures from then on."""
    formatter = shell.display_formatter.formatters["text/html"]
    for module, name in WRITERS:
        formatter.for_type_by_name(f"whatwhere.{module}", name, to_html)


def to_html(result: object) -> str | None:
    """Return a result as HTML, in which every text is escaped; None where it has no tables or figures."""
    names = ((each.__module__.removeprefix("whatwhere."), each.__name__) for each in type(result).__mro__)
    writer = next((WRITERS[name] for name in names if name in WRITERS), None)
    if writer is None:
        return None
    try:
        written = [*_written(writer(result))]
    except WhatWhereError:  # such as a learned table with too few rows: the text is shown instead
        return None
    return element("div", element("style", _STYLE), *written, class_="whatwhere") if written else None


def _written(report: Iterable[Section | Part]) -> Iterator[Markup]:
    for each in report:
        if isinstance(each, Section):
            yield element("h4", each.title)
            yield from _written(each.parts)
            continue
        if isinstance(each, Chart) and each.kind == "lines":
            yield _figure(each)
        if each and not (isinstance(each, Chart) and not each.table.rows):
            yield written_part(each, set())


def _figure(chart: Chart) -> Markup:
    from whatwhere.report.figures import to_file

    try:
        svg = to_file(chart, "svg", _WIDTH).decode("utf-8")
    except MissingExtra as problem:
        return paragraph(str(problem))
    return Markup(svg[svg.index("<svg") :])


def _comparison(results: Any) -> Iterator[Section | Part]:
    from whatwhere.comparison.statistics import PairedDifferences, paired_differences
    from whatwhere.report.comparison import summary
    from whatwhere.report.comparison_figures import figures
    from whatwhere.report.comparison_sentences import differences_table, first_sentences, last_length, scope_sentence

    found = paired_differences(results, last_length(results))
    yield from first_sentences(results, found)
    yield summary(results)
    for figure in figures(results):
        if figure.name in ("scores", "shift"):  # those of groups are files, by whatwhere figures
            yield Section(figure.name, figure.title, [figure])
    if isinstance(found, PairedDifferences) and found.pairs:
        yield differences_table(results, found)
    yield scope_sentence(results)


def _encoding(scheme: Any) -> Iterator[Part]:
    """Show how similar, or how favored, two tokens are by their distance."""
    from whatwhere.analysis.position_similarity import by_distance
    from whatwhere.where.binding import Where

    where = scheme if isinstance(scheme, Where) else Where(scheme)
    rows = min(_DISTANCES, getattr(where.input, "max_length", None) or _DISTANCES)
    found = by_distance(where, rows)
    yield element("pre", repr(scheme))
    if found is not None:
        curves = {name: curve.detach().cpu().tolist() for name, curve in found.curves.items()}
        series = [Series(name, [v if math.isfinite(v) else math.nan for v in curve]) for name, curve in curves.items()]
        yield Chart(
            "lines", found.label, "distance in tokens", found.label, [*map(float, range(rows))], series, name="scheme"
        )


def _map(found: Any) -> Iterator[Part]:
    from whatwhere.report.html import scatter
    from whatwhere.report.text import percent

    points, kept = found.coordinates, found.kept
    share, chance = percent(kept.share), percent(kept.chance)
    text = f"It keeps {share} of the {kept.k} nearest neighbors; chance would keep {chance}."
    yield scatter(points, [""] * len(points), ["token"] * len(points), f"Token map by {found.method}", [text])


def _parameters(counted: Any) -> Iterator[Part]:
    rows = [[name.replace("_", " "), f"{value:,}"] for name, value in {**vars(counted), "all": counted.total}.items()]
    yield Table("Parameters of the input layer", ["table", "parameters"], rows, [1])


def _by(module: str, function: str = "parts") -> Writer:
    """Return a writer that is loaded when it is used, with the headline of a report of sections."""

    def write(result: Any) -> Iterator[Section | Part]:
        texts = import_module(f"whatwhere.report.{module}")
        if function == "sections":
            yield f"{texts.headline(result)}."
        yield from getattr(texts, function)(result)

    return write


WRITERS: Mapping[tuple[str, str], Writer] = {
    ("comparison.read", "Comparison"): _comparison,
    ("comparison.answers", "Answers"): _by("comparison", "answers"),
    ("analysis.inspection", "Inspection"): _by("inspection", "sections"),
    ("analysis.token_table", "Sizes"): _by("inspection", "sizes"),
    ("analysis.token_table", "Norms"): _by("inspection", "norms"),
    ("analysis.pca", "Spectrum"): _by("inspection", "spectrum"),
    ("analysis.token_tables", "SiblingTables"): _by("inspection", "token_tables"),
    ("analysis.token_tables", "NGramOccupancy"): _by("inspection", "occupancy"),
    ("analysis.added_positions", "InputVariance"): _by("inspection", "variance"),
    ("analysis.added_positions", "PositionTable"): _by("positions", "positions"),
    ("analysis.rotary", "RotaryReport"): _by("positions", "rotary"),
    ("analysis.biases", "BiasReport"): _by("positions", "biases"),
    ("analysis.token_diagnostics", "TokenDiagnostics"): _by("diagnostics", "diagnostics"),
    ("analysis.checkpoint_difference", "Difference"): _by("difference", "sections"),
    ("analysis.token_neighbors", "SearchedTable"): _by("tokens", "found_rows"),
    ("surgery.report", "Report"): _by("surgery"),
    ("models.parameter_count", "InputParameters"): _parameters,
    ("analysis.walkthrough", "Walkthrough"): _by("tokens", "walk_steps"),
    ("analysis.token_map", "TokenMap"): _map,
    ("testing.report", "Report"): lambda report: [element("pre", str(report))],
    ("where.binding", "Where"): _encoding,
    ("where.base", "InputEncoding"): _encoding,
    ("where.base", "QueryKeyMap"): _encoding,
    ("where.score_bias", "ScoreBias"): _encoding,
}
"""What is shown of a result, by the module and name of its type, or of the type that it extends."""
