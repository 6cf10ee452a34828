"""Try what other packages offer by the laws of whatwhere.testing, and print who passes what.

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
_ANGLES = """Angles are taken in float32: near 131,072 they come in steps of 0.016 radians, near 1,000,000 of
0.062. What that does to a vector at 131,072, bfloat16 does to it anyway; in float32, or at a million, it is more
than rounding."""
_MODULE = """`module.bfloat16()` or `.to(torch.bfloat16)` rounds the frequencies, or the positions with them; some
thousand positions on, the angles have nothing to do with the formula. Keep this module in float32."""
MEANING = {
    "Rotary": {
        "far": _ANGLES,
        "very far": "As `far`, at a million.",
        "relative far away": "As `far`: two tokens at one distance get another score where they stand elsewhere.",
        "bfloat16 input": """It counts positions in the dtype of the queries, and bfloat16 has no odd numbers
            above 256. Hand it float32, and round what comes back: `rotate(q.float()).to(q.dtype)`.""",
        "call order": """Its cache keeps the angles that a call in bfloat16 made, and later calls in float32 get
            them. `cache_if_possible=False` turns the cache off.""",
        "bfloat16 module": f"""{_MODULE} transformers does so by itself where a model is loaded with
            `from_pretrained(..., dtype=torch.bfloat16)`; it is converting afterwards that rounds.""",
    },
    "ALiBi": {
        "formula": """transformers computes Falcon's slopes and numbers in bfloat16, whatever dtype is asked for.
            Whoever ports a Falcon checkpoint has to do the same; a new model need not.""",
        "relative": "As `formula`: numbers grow with the position, and bfloat16 rounds large ones by more.",
        "relative far away": """The bias is slope times key position, right but for a number that all keys of a
            query share. That number grows with the position, and leaves float32 fewer digits for the distances:
            at position 10,000 a hundredth of this is lost. In float16 and bfloat16 it is another matter: see
            `near`.""",
        "finite in float16": """float16 ends at 65,504. The steepest of 12 heads gets there at some 92,600: at
            that distance, or where the bias is slope times key position, at that position. It does harm where all
            keys of a query become infinite.""",
        "near in float16": """Slope times key position is a large number at position 8,191, and rounding it takes
            away what tells neighbors apart. A checkpoint that was trained with this expects it; a new model loses
            by it.""",
        "near in bfloat16": """As in float16, and worse, since bfloat16 keeps 8 bits. Both modules give their bias
            in the dtype of the model.""",
        "bfloat16 module": """`module.bfloat16()` rounds slopes by up to 0.4 %. Distances keep their order; scores
            differ a little from those of the model that was trained in float32.""",
    },
    "Sinusoid": {"far": _ANGLES, "very far": "As `far`, at a million.", "bfloat16 module": _MODULE},
}
INTRODUCTION = """`whatwhere.testing` tries anybody's positional encoding, given as a plain function, against the
formula in float64 and by the laws that our own schemes are tested by. This page is what it finds in other
packages, called by their own functions. It is written by the command below, and a test holds it equal
to what the command finds. The extra `bench` installs these packages."""
YOURS = """```python
from whatwhere.testing import check_rotary

report = check_rotary(fn, head_dim=64)  # fn(x, positions) -> x rotated; x is (batch, heads, tokens, head_dim)
print(report)  # which law holds and which fails, at which position, by how much, and why so much is allowed
report.require()  # raises AssertionError with that text: a test of your own
```"""
FAIRNESS = """A failure is a fact about a number, not a verdict on a package: what it means for a user stands
below each table. Errors of rotary are those of pairs of features of length 1 at most; those of biases are in
units of the score. The largest that was met is given. Positions are tried in a few stretches, so a fault may
begin before the position named."""


def tried() -> dict[str, dict[str, Report]]:
    """Try every peer: section -> name -> report."""
    torch.manual_seed(0)
    return {section: {peer.name: peer.check() for peer in group} for section, group in SECTIONS.items()}


def laws_of(reports: dict[str, Report]) -> list[str]:
    """Give the laws in the order they were tried."""
    return [finding.law for finding in next(iter(reports.values())).findings]


def table(reports: dict[str, Report]) -> str:
    """Give one row for each law, one column for each peer, as Markdown."""
    lines = ["| law | " + " | ".join(reports) + " |", "|---|" + "---|" * len(reports)]
    lines += [
        f"| {law} | " + " | ".join(MARKS[report[law].outcome] for report in reports.values()) + " |"
        for law in laws_of(reports)
    ]
    return "\n".join(lines)


def failures(section: str, reports: dict[str, Report]) -> str:
    """Say of each law that fails somewhere who fails it, by how much, and what that means for a user."""
    items = []
    for law in laws_of(reports):
        failing = {name: report[law] for name, report in reports.items() if not report[law].holds}
        if failing:
            alike: dict[str, list[str]] = {}
            for name, finding in failing.items():
                alike.setdefault(amount(finding), []).append(name)
            who = "; ".join(f"{', '.join(names)}: {much}" for much, names in alike.items())
            allowed = max(finding.tolerance or 0 for finding in failing.values())
            most = f" Allowed: {allowed:.0e}." if allowed else ""
            asked = next(iter(failing.values())).statement
            items.append(item(f"**{law}** ({asked}). {who}.{most} {MEANING[section][law]}"))
    return "\n".join([*items, *remarks(reports)])


def remarks(reports: dict[str, Report]) -> list[str]:
    """Say what is known of laws that hold or do not apply, once for all peers of which it is true."""
    said: dict[tuple[str, str], list[str]] = {}
    for law in laws_of(reports):
        for name, report in reports.items():
            if report[law].note and report[law].holds:
                said.setdefault((f"{law} {report[law].outcome}", report[law].note), []).append(name)
    return [item(f"{law} ({', '.join(names)}): {note}.") for (law, note), names in said.items()]


def amount(finding: Finding) -> str:
    """Give how far a law is from holding, and where first."""
    error = "" if finding.error is None else f"{finding.error:.0e} "
    return f"{error}from {finding.unit} {finding.first:,} on" if finding.first is not None else error


def item(text: str) -> str:
    """Give an item of a list, wrapped."""
    return fill(" ".join(text.split()), 120, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False)


def page(found: dict[str, dict[str, Report]]) -> str:
    """Give docs/conformance.md."""
    versions = ", ".join(f"{name} {version(name).split('+')[0]}" for name in PACKAGES)
    parts = [
        "# Conformance: who keeps which law",
        fill(INTRODUCTION, 120),
        f"```text\n{COMMAND}\n```",
        "To try your own:",
        YOURS,
        fill(f"Versions: {versions}.", 120, break_on_hyphens=False),
        "**no** says that the law fails, – that it does not apply.",
        fill(FAIRNESS, 120),
    ]
    for section, reports in found.items():
        parts += [f"## {section}", table(reports), failures(section, reports)]
    parts += ["## What each law asks", asked(found)]
    return "\n\n".join(part for part in parts if part) + "\n"


def asked(found: dict[str, dict[str, Report]]) -> str:
    """Give what each law asks and why so much is allowed, by the reports of our own schemes."""
    items = {}
    for reports in found.values():
        own = next(iter(reports.values()))
        for finding in own.findings:
            why = f" Allowed: {finding.tolerance:.0e}, because {finding.why}." if finding.tolerance else ""
            items.setdefault((own.check, finding.law), item(f"{finding.law}: {finding.statement}.{why}"))
    checks = dict.fromkeys(check for check, _ in items)
    return "\n\n".join(
        f"`{check}`\n\n" + "\n".join(text for (owner, _), text in items.items() if owner == check) for check in checks
    )


def main(arguments: list[str] | None = None) -> None:
    """Print the tables, or every report; write the page where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reports", action="store_true", help="print the whole report of each peer")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write the page there")
    options = parser.parse_args(arguments)
    found = tried()
    for section, reports in found.items():
        print(f"{section}\n\n{table(reports)}\n")
        if options.reports:
            print(*reports.values(), sep="\n\n")
    if options.write is not None:
        options.write.write_text(page(found), encoding="utf-8")


if __name__ == "__main__":
    main()
