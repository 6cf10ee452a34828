"""Figures of a comparison for a paper: scores by length, for all targets and each group, and the shift test."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from whatwhere.checks import require_choice
from whatwhere.comparison.read import Comparison
from whatwhere.comparison.results import ALL, Spread
from whatwhere.report.comparison import baselines_near
from whatwhere.report.comparison_sentences import measure_text, name_text, unit_of
from whatwhere.report.line_figure import Curve, LineFigure, layout, to_pdf, to_svg
from whatwhere.report.table_files import WrittenFiles, write_files
from whatwhere.report.text import capital

FORMATS = ("svg", "pdf")


def write_figures(
    results: Comparison,
    folder: str | Path,
    formats: Sequence[str] = FORMATS,
    width: int | float = 84.0,
    schemes: Sequence[str] | None = None,
) -> WrittenFiles:
    """Write the figures of a comparison as files.

    Args:
        results: of a comparison.
        folder: where to write; it is made where it is missing.
        formats: "svg", "pdf".
        width: in millimeters: 84 for a column, 174 for a page of two columns.
        schemes: those that are drawn, in this order; None is all.

    Returns:
        The names of the files.

    Raises:
        SettingError: If a format or scheme is unknown, or the width is not between 60 and 400.
        MissingExtra: If PDF is requested and reportlab is not installed.
        ResultsError: If the folder cannot be written.
    """
    for each in formats:
        require_choice("figures", "format", each, FORMATS)
    for scheme in schemes or ():
        require_choice("figures", "scheme", scheme, tuple(results.schemes))
    contents: dict[str, bytes] = {}
    for figure in figures(results, schemes):
        drawing = layout(figure, width)
        if "svg" in formats:
            contents[f"{figure.name}.svg"] = to_svg(drawing).encode("utf-8")
        if "pdf" in formats:
            contents[f"{figure.name}.pdf"] = to_pdf(drawing)
    return write_files(folder, contents)


def figures(results: Comparison, schemes: Sequence[str] | None = None) -> Iterator[LineFigure]:
    """Yield the figures: medians over the seeds, with a band from the least to the greatest.

    Args:
        results: of a comparison.
        schemes: those that are drawn, in this order; None is all.
    """
    drawn = list(schemes or results.schemes)
    lengths = [*results.trained, *results.beyond]
    trained = max(results.task.trained)
    for n, group in enumerate((ALL, *results.task.groups)):
        curves = [_curve(results, s, [results.score(s, length, group) for length in lengths]) for s in drawn]
        alone = "" if group == ALL else f", {name_text(group)} alone"
        yield LineFigure(
            name="scores" if group == ALL else f"scores-{n}-{_plain(group)}",
            title=f"{capital(name_text(results.task.measure))} by length{alone}",
            x_label=unit_of(results),
            y_label=measure_text(results),
            x=lengths,
            curves=[*curves, *(_baselines(results, lengths) if group == ALL else ())],
            mark=(trained, f"trained up to {trained}"),
            y_range=(0.0, 100.0) if results.percent else None,
        )
    if results.shifts:
        tests = {s: [results.summary[s].shift.get(shift) for shift in results.shifts] for s in drawn}
        yield LineFigure(
            name="shift",
            title="The same inputs, every position shifted",
            x_label="positions shifted by",
            y_label=measure_text(results),
            x=results.shifts,
            curves=[
                _curve(results, s, [None if each is None else each.score for each in line]) for s, line in tests.items()
            ],
            y_range=(0.0, 100.0) if results.percent else None,
        )


def _plain(name: str) -> str:
    """Return what a file may be called, of a name that holds anything."""
    return re.sub(r"[^A-Za-z0-9]+", "-", name)[:30].strip("-") or "group"


def _curve(results: Comparison, scheme: str, spreads: Sequence[Spread | None]) -> Curve:
    factor = 100 if results.percent else 1
    parts = [
        [None if each is None else factor * getattr(each, part) for each in spreads]
        for part in ("median", "min", "max")
    ]
    bands = parts[1:] if len(results.record.seeds) > 1 else ((), ())
    return Curve(name_text(scheme), parts[0], *bands)


def _baselines(results: Comparison, lengths: Sequence[int]) -> Iterator[Curve]:
    near, factor = baselines_near(results, lengths), 100 if results.percent else 1
    for name, line in results.task.baselines.items():
        values = [factor * line[length] if length in line else None for length in lengths]
        if name in near and any(value is not None for value in values):
            yield Curve(name_text(name), values, reference=True)
