"""Tables of a comparison as files: CSV with every seed, and Markdown and LaTeX for a paper."""

import csv
import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from whatwhere.atomic import atomic_file
from whatwhere.checks import require_choice
from whatwhere.comparison.read import Comparison
from whatwhere.comparison.statistics import PairedDifferences, paired_differences
from whatwhere.errors import ResultsError
from whatwhere.escape import visible
from whatwhere.records import Missing
from whatwhere.report.comparison import sections
from whatwhere.report.paired_differences import table as differences_table
from whatwhere.report.section import Table

FORMATS = ("csv", "markdown", "latex")
_SUFFIXES = {"markdown": ".md", "latex": ".tex"}


@dataclass(frozen=True)
class WrittenFiles:
    """What was written.

    Args:
        folder: of the files.
        files: their names.
        missing: why some are not there, or "".
    """

    folder: str
    files: tuple[str, ...]
    missing: str = ""


Cell = str | int | float | None
Rows = Iterable[Sequence[Cell]]

_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "_": r"\_", "%": r"\%",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': "{''}", "'": "{'}", "`": "{`}",
    "\u2212": "$-$", "\u2013": r"\textendash{}", "\u201c": "``", "\u201d": "''", "\u00a0": "~", "\u2264": r"$\le$",
    "\u221e": r"$\infty$", "\u27e8": r"$\langle$", "\u27e9": r"$\rangle$", "\u2026": r"\ldots{}",
}  # fmt: skip
"""Every character that TeX reads as a command or joins with its neighbor, and those that reports write."""
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>|~$&#])")


def write_tables(
    results: Comparison, folder: str | Path, formats: Sequence[str] = FORMATS, against: str | None = None
) -> WrittenFiles:
    """Write the tables of a comparison as files.

    Args:
        results: of a comparison.
        folder: where to write; it is made where it is missing.
        formats: "csv" (numbers in full, one row for each seed), "markdown", "latex" (for booktabs).
        against: a scheme that every other is compared with; None compares all pairs.

    Returns:
        The names of the files. Where SciPy is not installed there are no differences.

    Raises:
        SettingError: If a format is unknown, or `against` is no scheme of the comparison.
        ResultsError: If a file of the results is damaged.
    """
    for each in formats:
        require_choice("tables", "format", each, FORMATS)
    contents: dict[str, str] = {}
    tested = [paired_differences(results, length, against) for length in (None, *results.beyond)]
    found = [each for each in tested if isinstance(each, PairedDifferences)]
    missing = next((each.missing for each in tested if isinstance(each, Missing)), "")
    if "csv" in formats:
        contents |= {f"{name}.csv": csv_text(rows) for name, rows in numbers(results, found).items()}
    shown = _shown(results, found)
    for kind, write in (("markdown", markdown), ("latex", latex)):
        if kind in formats:
            contents |= {f"{name}{_SUFFIXES[kind]}": "\n".join(map(write, each)) for name, each in shown.items()}
    return write_files(folder, {name: text.encode("utf-8") for name, text in contents.items()}, missing)


def write_files(folder: str | Path, contents: Mapping[str, bytes], missing: str = "") -> WrittenFiles:
    """Write files into a folder; those of the same names are replaced.

    Args:
        folder: made where it is missing.
        contents: bytes by name.
        missing: why some are not there, or "".

    Raises:
        ResultsError: If they cannot be written.
    """
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            with atomic_file(Path(folder) / name) as path:
                path.write_bytes(content)
    except OSError as problem:
        raise ResultsError(f"{folder} cannot be written: {problem}.\nPass another folder.") from None
    return WrittenFiles(str(folder), tuple(contents), missing)


def numbers(results: Comparison, found: Sequence[PairedDifferences]) -> dict[str, list[list[Cell]]]:
    """Return the numbers of a comparison in full, as rows under a heading, by the name of a table.

    Args:
        results: of a comparison.
        found: differences, at some lengths.
    """
    task = results.task
    scores: list[list[Cell]] = [["scheme", "seed", "group", task.unit, "trained", task.measure]]
    shift: list[list[Cell]] = [["scheme", "seed", "shift", task.measure, "largest logit change"]]
    runs: list[list[Cell]] = [
        ["scheme", "seed", "parameters", "of positions", "steps", "seconds per step", "last loss", "in length"]
    ]
    for run in results.runs:
        first: list[Cell] = [run.scheme, run.seed]
        for length, groups in sorted(run.scores.items()):
            inside = str(length <= max(task.trained)).lower()
            scores += [[*first, group, length, inside, score] for group, score in groups.items()]
        shift += [[*first, by, each.score, each.largest_logit_change] for by, each in sorted(run.shift.items())]
        counts = run.parameters.total, run.parameters.positions, run.steps
        runs.append([*first, *counts, run.seconds_per_step, run.losses[-1][1] if run.losses else None, run.in_length])
    tables = {"scores": scores, "shift": shift, "runs": runs}
    return tables | ({"differences": _difference_rows(found)} if found else {})


def csv_text(rows: Rows) -> str:
    """Write rows as CSV, in which no text is a formula of a spreadsheet and no number is rounded.

    Args:
        rows: of text, numbers, and None or NaN for an empty cell.

    Examples:
        >>> csv_text([["scheme", "score"], ["=1+1", -0.5], ["a,b", None]])
        'scheme,score\\r\\n\\'=1+1,-0.5\\r\\n"a,b",\\r\\n'
    """
    out = io.StringIO()
    csv.writer(out).writerows([_plain(cell) for cell in row] for row in rows)
    return out.getvalue()


def markdown(table: Table) -> str:
    """Write a table as Markdown, its caption in bold above it.

    Examples:
        >>> print(markdown(Table("A|B", ["scheme", "score"], [["a_b", "1"]], numeric=[1])))
        **A\\|B**
        <BLANKLINE>
        | scheme | score |
        | --- | ---: |
        | a\\_b | 1 |
        <BLANKLINE>
    """
    rule = ["---:" if n in table.numeric else "---" for n in range(len(table.columns))]
    rows = [[markdown_text(cell) for cell in row] for row in (table.columns, *table.rows)]
    lines = [f"| {' | '.join(row)} |" for row in (rows[0], rule, *rows[1:])]
    return "\n".join([f"**{markdown_text(table.caption)}**", "", *lines, ""])


def markdown_text(text: str) -> str:
    """Escape text for a cell of a Markdown table: nothing in it is markup.

    Examples:
        >>> markdown_text("a|<b>")
        'a\\\\|\\\\<b\\\\>'
    """
    return _MARKDOWN.sub(r"\\\1", visible(text))


def latex(table: Table) -> str:
    """Write a table as LaTeX, for the package booktabs.

    Examples:
        >>> print(latex(Table("Scores", ["scheme", "%"], [["a_b", "−1"]], numeric=[1])))
        % \\usepackage{booktabs}
        \\begin{table}
          \\centering
          \\caption{Scores}
          \\begin{tabular}{lr}
            \\toprule
            scheme & \\% \\\\
            \\midrule
            a\\_b & $-$1 \\\\
            \\bottomrule
          \\end{tabular}
        \\end{table}
        <BLANKLINE>
    """
    columns = "".join("r" if n in table.numeric else "l" for n in range(len(table.columns)))
    head, *rows = (f"    {' & '.join(map(latex_text, row))} \\\\" for row in (table.columns, *table.rows))
    lines = [
        "% \\usepackage{booktabs}",
        "\\begin{table}",
        "  \\centering",
        f"  \\caption{{{latex_text(table.caption)}}}",
        f"  \\begin{{tabular}}{{{columns}}}",
        "    \\toprule",
        head,
        "    \\midrule",
        *rows,
        "    \\bottomrule",
        "  \\end{tabular}",
        "\\end{table}",
    ]
    return "\n".join(lines) + "\n"


def latex_text(text: str) -> str:
    """Escape text for LaTeX: nothing in it is a command, and what pdfTeX has no character for is its code point.

    Examples:
        >>> latex_text("rotary@dim=16_a & 50 %")
        'rotary@dim=16\\\\_a \\\\& 50 \\\\%'
    """
    written = "".join(_LATEX.get(char) or _in_latex(char) for char in visible(text))
    return re.sub(r"-(?=-)", "-{}", written)  # two would be joined to a dash


def _in_latex(char: str) -> str:
    accented = "\u00c0" <= char <= "\u00ff" and char not in "\u00d0\u00f0\u00de\u00fe"
    return char if char.isascii() or accented else f"[U+{ord(char):04X}]"


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


def _shown(results: Comparison, found: Sequence[PairedDifferences]) -> dict[str, list[Table]]:
    """Return the tables of the report by the name of its section; the differences at every length."""
    tables = {
        section.name: [part for part in section.parts if isinstance(part, Table)] for section in sections(results)
    }
    tables["differences"] = [differences_table(results, each) for each in found if each.pairs]
    return {name: each for name, each in tables.items() if each}


def _plain(cell: Cell) -> Cell:
    if isinstance(cell, str):
        text = visible(cell)
        return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text
    return "" if cell is None or (isinstance(cell, float) and not math.isfinite(cell)) else cell
