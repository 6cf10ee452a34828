"""Check the positional encodings of other packages by the laws of whatwhere.testing, and print which law each passes.

Run it: python examples/check_peers.py [--reports] [--write docs/conformance.md]. It needs the extra `bench`, and some
ten seconds on one core.
"""

import argparse
from importlib.metadata import version
from pathlib import Path
from textwrap import fill

import peers
import torch

from whatwhere.testing import Finding, Report

COMMAND = "python examples/check_peers.py --write docs/conformance.md"
PACKAGES = ("torch", "transformers", "rotary-embedding-torch", "x-transformers", "positional-encodings")
SECTIONS = {"Rotary": peers.ROTARY, "ALiBi": peers.ALIBI, "T5": peers.T5, "Sinusoid": peers.SINUSOIDAL}
MARKS = {"passes": "yes", "fails": "**no**", "does not apply": "–"}
_ANGLES = """Angles are computed in float32, whose spacing is 0.016 radians near 131,072, and 0.062 near
1,000,000. At 131,072 the error of a vector is that of rounding it to bfloat16; in float32, or at a million, it is more
than rounding."""
_MODULE = """`module.bfloat16()` or `.to(torch.bfloat16)` rounds the frequencies, or the positions with them; after some
thousand positions the angles are unrelated to the formula. Keep this module in float32."""
MEANING = {
    "Rotary": {
        "far": _ANGLES,
        "very far": "As `far`, at a million.",
        "relative far away": "As `far`: two tokens at the same distance get another score at other positions.",
        "bfloat16 input": """It counts positions in the dtype of the queries, and bfloat16 has no odd numbers
            above 256. Pass float32, and round the result: `rotate(q.float()).to(q.dtype)`.""",
        "call order": """Its cache keeps the angles of a call in bfloat16, and later calls in float32 use
            them. `cache_if_possible=False` disables the cache.""",
        "bfloat16 module": f"""{_MODULE} transformers keeps it in float32 where a model is loaded with
            `from_pretrained(..., dtype=torch.bfloat16)`; converting a loaded model rounds it.""",
    },
    "ALiBi": {
        "formula": """transformers computes Falcon's slopes and numbers in bfloat16, whatever the dtype of the
            model. To port a Falcon checkpoint, do the same; a new model need not.""",
        "relative": "As `formula`: numbers grow with the position, and bfloat16 rounds large ones by more.",
        "relative far away": """The bias is slope times key position, correct up to a constant for each query.
            The constant grows with the position, and leaves float32 fewer digits for the distances:
            at position 10,000 the error is a hundredth of this. In float16 and bfloat16 it is another matter: see
            `near`.""",
        "finite in float16": """float16 ends at 65,504. Slope times key position reaches it near position
            92,600 in the steepest of 12 heads; beyond, the biases of all keys are infinite.""",
        "near in float16": """Slope times key position is a large number at position 8,191, and after rounding
            neighbors have equal biases. A checkpoint trained with this expects it; a new model loses by it.""",
        "near in bfloat16": """As in float16, and worse, since bfloat16 keeps 8 bits. Both modules return their
            bias in the dtype of the model.""",
        "bfloat16 module": """`module.bfloat16()` rounds slopes by up to 0.4 %. Distances keep their order; scores
            differ a little from those of the model that was trained in float32.""",
    },
    "Sinusoid": {"far": _ANGLES, "very far": "As `far`, at a million.", "bfloat16 module": _MODULE},
}
INTRODUCTION = """`whatwhere.testing` checks any positional encoding, given as a plain function, against the formula
in float64 and by the laws that our own schemes are tested by. This page is its result for other packages, called by
their own functions. The command below writes it, and a test fails where it differs from the result of the command. The
extra `bench` installs these packages. Engines that are too large for that are on [their own page](engines.md)."""
YOURS = """```python
from whatwhere.testing import check_rotary

report = check_rotary(fn, head_dim=64)  # fn(x, positions) -> x rotated; x is (batch, heads, tokens, head_dim)
print(report)  # which law passes and which fails, at which position, by how much, and the reason for the tolerance
report.require()  # raises AssertionError with that text: a test of your own
```"""
FAIRNESS = """A failure is a fact about a number, not a verdict on a package: what it means for a user is below each
table. Errors of rotary are for pairs of features with a norm of at most 1; those of biases are in units of the score.
The largest error is given. Only some runs of positions are checked, so a fault may begin before the given position."""


def check_all() -> dict[str, dict[str, Report]]:
    """Check every peer, and return the reports: section -> name -> report."""
    torch.manual_seed(0)
    return {section: {peer.name: peer.check() for peer in group} for section, group in SECTIONS.items()}


def laws_of(reports: dict[str, Report]) -> list[str]:
    """Return the laws in the order of the checks."""
    return [finding.law for finding in next(iter(reports.values())).findings]


def table(reports: dict[str, Report]) -> str:
    """Format a Markdown table: one row for each law, one column for each peer."""
    lines = ["| law | " + " | ".join(reports) + " |", "|---|" + "---|" * len(reports)]
    lines += [
        f"| {law} | " + " | ".join(MARKS[report[law].outcome] for report in reports.values()) + " |"
        for law in laws_of(reports)
    ]
    return "\n".join(lines)


def failures(section: str, reports: dict[str, Report]) -> str:
    """Return an item for each law that fails: which peers fail it, by how much, and what that means for a user."""
    items = []
    for law in laws_of(reports):
        failing = {name: report[law] for name, report in reports.items() if not report[law].holds}
        if failing:
            by_amount: dict[str, list[str]] = {}
            for name, finding in failing.items():
                by_amount.setdefault(amount(finding), []).append(name)
            who = "; ".join(f"{', '.join(names)}: {much}" for much, names in by_amount.items())
            allowed = max(finding.tolerance or 0 for finding in failing.values())
            most = f" Allowed: {allowed:.0e}." if allowed else ""
            statement = next(iter(failing.values())).statement
            items.append(item(f"**{law}** ({statement}). {who}.{most} {MEANING[section][law]}"))
    return "\n".join([*items, *remarks(reports)])


def remarks(reports: dict[str, Report]) -> list[str]:
    """Return an item for each note on laws that pass or do not apply, with all peers that it is true of."""
    notes: dict[tuple[str, str], list[str]] = {}
    for law in laws_of(reports):
        for name, report in reports.items():
            if report[law].note and report[law].holds:
                notes.setdefault((f"{law} {report[law].outcome}", report[law].note), []).append(name)
    return [item(f"{law} ({', '.join(names)}): {note}.") for (law, note), names in notes.items()]


def amount(finding: Finding) -> str:
    """Return the largest error, and the first position or distance at which the law fails."""
    error = "" if finding.error is None else f"{finding.error:.0e} "
    return f"{error}from {finding.unit} {finding.first:,} on" if finding.first is not None else error


def item(text: str) -> str:
    """Format an item of a Markdown list, wrapped."""
    return fill(" ".join(text.split()), 120, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False)


def page(sections: dict[str, dict[str, Report]]) -> str:
    """Return the text of docs/conformance.md."""
    versions = ", ".join(f"{name} {version(name).split('+')[0]}" for name in PACKAGES)
    parts = [
        "# Conformance: which implementation passes which law",
        fill(INTRODUCTION, 120),
        f"```text\n{COMMAND}\n```",
        "To check your own:",
        YOURS,
        fill(f"Versions: {versions}.", 120, break_on_hyphens=False),
        "**no**: the law fails; –: it does not apply.",
        fill(FAIRNESS, 120),
    ]
    for section, reports in sections.items():
        parts += [f"## {section}", table(reports), failures(section, reports)]
    parts += ["## What each law requires", requirements(sections)]
    return "\n\n".join(part for part in parts if part) + "\n"


def requirements(sections: dict[str, dict[str, Report]]) -> str:
    """Return what each law requires and the reason for its tolerance, from the reports of our own schemes."""
    items = {}
    for reports in sections.values():
        own = next(iter(reports.values()))
        for finding in own.findings:
            why = f" Allowed: {finding.tolerance:.0e}, because {finding.why}." if finding.tolerance else ""
            items.setdefault((own.check, finding.law), item(f"{finding.law}: {finding.statement}.{why}"))
    checks = dict.fromkeys(check for check, _ in items)
    return "\n\n".join(
        f"`{check}`\n\n" + "\n".join(text for (owner, _), text in items.items() if owner == check) for check in checks
    )


def main(arguments: list[str] | None = None) -> None:
    """Print the tables, or every report; write the page with --write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reports", action="store_true", help="print the whole report of each peer")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write the page there")
    options = parser.parse_args(arguments)
    sections = check_all()
    for section, reports in sections.items():
        print(f"{section}\n\n{table(reports)}\n")
        if options.reports:
            print(*reports.values(), sep="\n\n")
    if options.write is not None:
        options.write.write_text(page(sections), encoding="utf-8")


if __name__ == "__main__":
    main()
