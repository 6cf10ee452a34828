"""What a check found: one finding for each law, and the report that holds them."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from math import isfinite
from textwrap import fill
from typing import Any, Literal, final

Outcome = Literal["passes", "fails", "does not apply"]
_HEADER = ("law", "outcome", "error", "allowed", "first at")


@final
@dataclass(frozen=True)
class Finding:
    """Say how one law fared.

    Args:
        law: its short name.
        statement: what it asks.
        outcome: passes, fails, or does not apply.
        error: the largest that was met; None where nothing was measured.
        tolerance: the largest that is allowed; None where the law is not about a number.
        why: why that much is allowed.
        first: the position, or of a bias the distance, where the law fails first; None where no place is to blame.
        unit: which of the two.
        note: what else is known: the reading that fits, what was raised, why the law does not apply.

    >>> Finding("norms", "no vector changes its length", "fails", 0.5, 1e-6, "float32 rounds", first=7).line()
    'norms: fails, 5.0e-01 where 1.0e-06 is allowed, first at position 7'
    """

    law: str
    statement: str
    outcome: Outcome
    error: float | None = None
    tolerance: float | None = None
    why: str = ""
    first: int | None = None
    unit: Literal["position", "distance"] = "position"
    note: str = ""

    @property
    def holds(self) -> bool:
        """True unless the law fails."""
        return self.outcome != "fails"

    def line(self) -> str:
        """Give the finding in one line."""
        parts = [f"{self.law}: {self.outcome}"]
        if self.error is not None and self.tolerance is not None:
            parts.append(f"{self.error:.1e} where {self.tolerance:.1e} is allowed")
        if self.first is not None:
            parts.append(f"first at {self.unit} {self.first:,}")
        return ", ".join(parts)

    def require(self) -> None:
        """Raise AssertionError if the law fails."""
        if not self.holds:
            raise AssertionError(f"{self.line()}\n{self.explained()}")

    def explained(self) -> str:
        """Give what the law asks, what is known, and why that much is allowed, as an indented paragraph."""
        sentences = [self.statement, self.note]
        if self.tolerance is not None and self.why:
            sentences.append(f"{self.tolerance:.1e} is allowed because {self.why}")
        text = " ".join(f"{part[0].upper()}{part[1:].rstrip('.')}." for part in sentences if part)
        return fill(text, 110, initial_indent="    ", subsequent_indent="    ")


@final
@dataclass(frozen=True)
class Report:
    """Hold what a check found, law by law; `print(report)` gives the table.

    Args:
        check: the function that made it.
        settings: what the implementation was said to be.
        findings: one for each law, in the order they were tried.

    >>> report = Report("check_rotary", {"head_dim": 64}, (Finding("norms", "no vector changes its length", "passes"),))
    >>> report.passed, report["norms"].outcome
    (True, 'passes')
    """

    check: str
    settings: Mapping[str, Any]
    findings: tuple[Finding, ...] = field(default=())

    @property
    def passed(self) -> bool:
        """True where no law fails."""
        return not self.failed

    @property
    def failed(self) -> tuple[Finding, ...]:
        """The laws that fail."""
        return tuple(finding for finding in self.findings if not finding.holds)

    def __getitem__(self, law: str) -> Finding:
        """Give the finding of a law by its name."""
        for finding in self.findings:
            if finding.law == law:
                return finding
        raise KeyError(f"no law is called {law!r}; this report has: {', '.join(f.law for f in self.findings)}.")

    def require(self) -> None:
        """Raise AssertionError, with the table as its text, if any law fails."""
        if not self.passed:
            raise AssertionError(str(self))

    def as_dict(self) -> dict[str, Any]:
        """Give the report as JSON holds it."""
        return {
            "check": self.check,
            "settings": dict(self.settings),
            "passed": self.passed,
            "findings": [asdict(finding) | _finite(finding) for finding in self.findings],
        }

    def __str__(self) -> str:
        """Show the table, and below it what the laws that fail or do not apply have to say."""
        rows = [_HEADER, *(_cells(finding) for finding in self.findings)]
        widths = [max(len(row[column]) for row in rows) for column in range(5)]
        table = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        failed = [f"\n{finding.law}: fails\n{finding.explained()}" for finding in self.failed]
        noted = [f"{f.law} {f.outcome}: {f.note}." for f in self.findings if f.holds and f.note]
        return "\n".join([self._title(), "", *table, *failed, *([""] if noted else []), *noted])

    def _title(self) -> str:
        settings = ", ".join(f"{name}={value}" for name, value in self.settings.items())
        tried = [finding for finding in self.findings if finding.outcome != "does not apply"]
        outcome = f"{len(self.failed)} of {len(tried)} laws fail" if self.failed else f"all {len(tried)} laws hold"
        # Laws that hold say little of a bias whose numbers nobody has looked at.
        untried = any(f.law == "formula" and f.outcome == "does not apply" for f in self.findings)
        return f"{self.check}({settings}): {outcome}{', but the formula was not tried' if untried else ''}"


def _finite(finding: Finding) -> dict[str, str]:
    """Give an error that JSON has no number for as a word."""
    return {} if finding.error is None or isfinite(finding.error) else {"error": str(finding.error)}


def _cells(finding: Finding) -> tuple[str, str, str, str, str]:
    error = "" if finding.error is None else f"{finding.error:.1e}"
    allowed = "" if finding.tolerance is None else f"{finding.tolerance:.1e}"
    first = "" if finding.first is None else f"{finding.unit} {finding.first:,}"
    return finding.law, finding.outcome, error, allowed, first
