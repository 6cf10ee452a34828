"""Tables and figures of a comparison as files for a paper: CSV with every seed, Markdown, LaTeX; SVG, PDF and PNG."""

import csv
import io
import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from whatwhere.atomic import atomic_file
from whatwhere.checks import require_choice
from whatwhere.comparison.read import Comparison, Scored
from whatwhere.comparison.results import ALL
from whatwhere.comparison.statistics import PairedDifferences, paired_differences
from whatwhere.errors import ResultsError, SettingError
from whatwhere.escape import visible
from whatwhere.records import Missing
from whatwhere.report.comparison import summary
from whatwhere.report.comparison_figures import differences_figure, figures, held_out_figure
from whatwhere.report.comparison_sentences import choices_table, differences_table, methods_sentence, setup_sentence
from whatwhere.report.figures import FORMATS as FIGURE_FORMATS
from whatwhere.report.figures import to_file
from whatwhere.report.section import Chart, Table

TABLE_FORMATS = ("csv", "markdown", "latex")


@dataclass(frozen=True)
class WrittenFiles:
    """What was written."""

    folder: str  # of the files
    files: tuple[str, ...]  # their names
    missing: str = ""  # why some are not there, or ""

    @property
    def lines(self) -> list[str]:
        """What is printed of them."""
        missing = [f"Not all is written: {self.missing}."] if self.missing else []
        return [*(str(Path(self.folder) / name) for name in self.files), *missing]


Cell = str | int | float | None
Rows = Iterable[Sequence[Cell]]

_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "_": r"\_", "%": r"\%",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': "{''}", "'": "{'}", "`": "{`}", "[": "{[}", "]": "{]}", "*": "{*}",
    "\u2212": "$-$", "\u2013": r"\textendash{}", "\u201c": "``", "\u201d": "''", "\u00a0": "~", "\u2264": r"$\le$",
    "\u00b1": r"$\pm$", "\u221e": r"$\infty$", "\u27e8": r"$\langle$", "\u27e9": r"$\rangle$", "\u2026": r"\ldots{}",
}  # fmt: skip
"""Every character that TeX reads as a command (also [ and * after a line's end) or joins with its neighbor, and those
that reports write."""
_LINE = 75  # characters of a line of print, roughly
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>|~$&#])")


def write_tables(
    results: Scored, folder: str | Path, formats: Sequence[str] = TABLE_FORMATS, against: str | None = None
) -> WrittenFiles:
    """Write the tables of a comparison as files into a folder, with a paragraph on methods.

    The differences are those from `against`, or from the scheme that was chosen when the comparison began, or of all
    pairs; where SciPy is not installed there are none.
    """
    for each in formats:
        require_choice("tables", "format", each, TABLE_FORMATS)
    tested = [paired_differences(results, length, against) for length in (None, *results.beyond)]
    found = [each for each in tested if isinstance(each, PairedDifferences)]
    missing = next((each.missing for each in tested if isinstance(each, Missing)), "")
    pairs = [each for each in found if each.pairs]
    shown = {
        "scores": {"scores": summary(results)},
        "settings": {"settings": choices_table(results)[0]} if choices_table(results) else {},
        "differences": {
            f"differences-{each.length or 'in-length'}": differences_table(results, each) for each in pairs
        },
    }
    methods = " ".join(filter(None, (setup_sentence(results), methods_sentence(results, pairs[0]) if pairs else "")))
    contents: dict[str, str] = {}
    if "csv" in formats:
        contents |= {f"{name}.csv": csv_text(rows) for name, rows in numbers(results, found).items()}
    for name, tables in shown.items():
        if tables and "markdown" in formats:
            contents[f"{name}.md"] = "\n".join(map(markdown, tables.values()))
        if tables and "latex" in formats:
            contents[f"{name}.tex"] = "\n".join(latex(table, label) for label, table in tables.items())
    if methods and "markdown" in formats:
        contents["methods.md"] = f"{methods}\n"
    if methods and "latex" in formats:
        contents["methods.tex"] = f"{latex_text(methods)}\n"
    return _write_files(folder, {name: text.encode("utf-8") for name, text in contents.items()}, missing)


def write_figures(
    results: Scored,
    folder: str | Path,
    formats: Sequence[str] = ("svg", "pdf"),
    width: int | float = 84.0,
    schemes: Sequence[str] | None = None,
    against: str | None = None,
) -> WrittenFiles:
    """Write the figures of a comparison as files into a folder, of a width in millimeters.

    `schemes` are drawn in this order, None is all; the differences are those from `against`, as in `write_tables`.
    """
    for each in formats:
        require_choice("figures", "format", each, FIGURE_FORMATS)
    schemes = None if schemes is None else [_drawn(results, scheme) for scheme in schemes]
    drawn = list(figures(results, schemes))
    drawn += held_out_figure(results) if isinstance(results, Comparison) else ()
    if (reference := against or results.against) and (change := differences_figure(results, reference, schemes)):
        drawn.append(change)
    files = {f"{each.name}.{kind}": to_file(each, kind, width) for each in drawn for kind in formats}
    if {"pdf", "png"} & {*formats}:
        files["figures.tex"] = "\n".join(map(_latex_figure, drawn)).encode("utf-8")
    return _write_files(folder, files)


def _drawn(results: Scored, scheme: str) -> str:
    try:
        return results.find_scheme(scheme)
    except SettingError:  # as it was requested, before its setting was chosen
        return results.find_scheme(scheme, compared=True)


def _write_files(folder: str | Path, contents: Mapping[str, bytes], missing: str = "") -> WrittenFiles:
    """Write files into a folder, by name; those of the same names are replaced."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            with atomic_file(Path(folder) / name, follow=False) as path:
                path.write_bytes(content)
    except OSError as problem:
        raise ResultsError(f"{folder} cannot be written: {problem.strerror}.\nPass another folder.") from None
    return WrittenFiles(str(folder), tuple(contents), missing)


def numbers(results: Scored, found: Sequence[PairedDifferences]) -> dict[str, list[list[Cell]]]:
    """Return the numbers of a comparison in full, as rows under a heading, by the name of a table."""
    task = results.task
    scores: list[list[Cell]] = [["scheme", "seed", "group", task.unit, "trained", task.measure, "sequences"]]
    for scheme in results.schemes:
        for n, group in itertools.product(results.tested, (ALL, *task.groups)):
            inside, tested = str(n <= max(task.trained)).lower(), task.sequences.get(n)
            by_seed = results.by_seed(scheme, n, group)
            scores += [[scheme, seed, group, n, inside, score, tested] for seed, score in by_seed.items()]
    measured = _of_runs(results) if isinstance(results, Comparison) else {}
    return {"scores": scores} | measured | ({"differences": _difference_rows(found)} if found else {})


def _of_runs(results: Comparison) -> dict[str, list[list[Cell]]]:
    """Return the shift test, the runs, their losses and settings of a comparison, as rows under a heading."""
    task = results.task
    shift: list[list[Cell]] = [["scheme", "seed", "shift", task.measure, "largest logit change"]]
    runs: list[list[Cell]] = [
        ["scheme", "seed", "parameters", "of positions", "steps", "seconds per step", "last loss", "in length"]
    ]
    losses: list[list[Cell]] = [["scheme", "seed", "step", "of", "loss"]]
    for run in results.runs:
        first: list[Cell] = [run.scheme, run.seed]
        shift += [[*first, by, each.score, each.largest_logit_change] for by, each in sorted(run.shift.items())]
        counts = run.parameters.total, run.parameters.positions, run.steps
        runs.append([*first, *counts, run.seconds_per_step, run.losses[-1][1] if run.losses else None, run.in_length])
        for kind, curve in (("the batch", run.losses), ("held-out sequences", run.held_out)):
            losses += [[*first, step, kind, loss] for step, loss in curve]
    chosen: list[list[Cell]] = [["scheme", "setting", "held-out loss", "compared"]]
    for each in results.record.choices:
        chosen += [[each.scheme, name, loss, str(name == each.chosen).lower()] for name, loss in each.losses.items()]
    return {"shift": shift, "runs": runs, "losses": losses} | ({"settings": chosen} if chosen[1:] else {})


def csv_text(rows: Rows) -> str:
    """Write rows as CSV, in which no text is a formula of a spreadsheet and no number is rounded."""
    out = io.StringIO()
    csv.writer(out).writerows([_plain(cell) for cell in row] for row in rows)
    return out.getvalue()


def markdown(table: Table) -> str:
    """Write a table as Markdown, its caption in bold above it, where it has one."""
    rule = ["---:" if n in table.numeric else "---" for n in range(len(table.columns))]
    rows = [[markdown_text(cell) for cell in row] for row in (table.columns, *table.rows)]
    lines = [f"| {' | '.join(row)} |" for row in (rows[0], rule, *rows[1:])]
    caption = [f"**{markdown_text(table.caption)}**", ""] if table.caption else []
    return "\n".join([*caption, *lines, ""])


def markdown_text(text: str) -> str:
    """Escape text for a cell of a Markdown table: nothing in it is markup."""
    return _MARKDOWN.sub(r"\\\1", visible(text))


def latex(table: Table, label: str) -> str:
    """Write a table as LaTeX, for the package booktabs, as `tab:label`; one wider than a line is scaled (graphicx)."""
    columns = "".join("r" if n in table.numeric else "l" for n in range(len(table.columns)))
    head, *rows = (f"    {' & '.join(map(latex_text, row))} \\\\" for row in (table.columns, *table.rows))
    widths = [max(map(len, column)) for column in zip(table.columns, *table.rows, strict=True)]
    wide = sum(widths) + 2 * len(widths) > _LINE
    lines = [
        f"% \\usepackage{{booktabs{',graphicx' if wide else ''}}}",
        "\\begin{table}",
        "  \\centering",
        f"  \\caption{{{latex_text(table.caption)}}}",
        f"  \\label{{tab:{label}}}",
        "  \\smallskip",
        *(["  \\resizebox{\\linewidth}{!}{%"] if wide else []),
        f"  \\begin{{tabular}}{{{columns}}}",
        "    \\toprule",
        head,
        "    \\midrule",
        *rows,
        "    \\bottomrule",
        f"  \\end{{tabular}}{'}' if wide else ''}",
        "\\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _latex_figure(figure: Chart) -> str:
    note = figure.note or "Medians over the seeds, with bands from the least to the greatest."
    caption = latex_text(f"{figure.title}. {note}")
    return (
        f"% \\usepackage{{graphicx}}\n\\begin{{figure}}\n  \\centering\n  \\includegraphics{{{figure.name}}}\n"
        f"  \\caption{{{caption}}}\n  \\label{{fig:{figure.name}}}\n\\end{{figure}}\n"
    )


def latex_text(text: str) -> str:
    """Escape text for LaTeX: nothing in it is a command, and what pdfTeX has no character for is its code point."""
    written = "".join(_LATEX.get(char) or _in_latex(char) for char in visible(text))
    return re.sub(r"-(?=-)", "-{}", written)  # two would be joined to a dash


def _in_latex(char: str) -> str:
    accented = "\u00c0" <= char <= "\u00ff" and char not in "\u00d0\u00f0\u00de\u00fe"
    return char if char.isascii() or accented else f"$\\langle$U+{ord(char):04X}$\\rangle$"


def _difference_rows(found: Sequence[PairedDifferences]) -> list[list[Cell]]:
    seeds = found[0].seeds
    head = ["length", "first", "second", "mean", "low", "high", "ahead", "seeds", "effect", "p", "p_holm", "family"]
    rows: list[list[Cell]] = [[*head, "outcome", *(f"seed {seed}" for seed in seeds)]]
    for each in found:
        for pair in each.pairs:
            ends = (None, None) if pair.interval is None else (pair.interval.low, pair.interval.high)
            length = "in length" if each.length is None else each.length
            tested = pair.ahead, len(pair.gains), pair.effect, pair.p, pair.p_holm, each.family, pair.outcome
            rows.append([length, pair.first, pair.second, pair.mean, *ends, *tested, *pair.gains])
    return rows


def _plain(cell: Cell) -> Cell:
    if isinstance(cell, str):
        text = visible(cell)
        return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text
    return "" if cell is None or (isinstance(cell, float) and not math.isfinite(cell)) else cell
