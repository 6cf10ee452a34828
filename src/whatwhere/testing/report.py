"""The result of a check: a finding for each law, and the report of all."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from math import isfinite
from textwrap import fill
from typing import Literal, final

Outcome = Literal["passes", "fails", "does not apply"]
_HEADER = ("law", "outcome", "error", "allowed", "first at")


@final
@dataclass(frozen=True)
class Finding:
    """The outcome of one law.

    Args:
        law: its short name.
        statement: what it requires.
        outcome: passes, fails, or does not apply.
        error: the largest that was measured; None where nothing was measured.
        tolerance: the largest allowed; None where the law has no tolerance.
        why: the reason for the tolerance.
        first: the first position, or distance of a bias, at which the law fails; None where it depends on none.
        unit: which of the two.
        note: an explanation: the known mistake that fits, the exception, or why the law does not apply.

    Examples:
        >>> Finding("norms", "no vector changes its norm", "fails", 0.5, 1e-6, "float32 rounds", first=7).line()
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
        """Whether the law passes or does not apply."""
        return self.outcome != "fails"

    def line(self) -> str:
        """Return the finding in one line: with numbers, or the reason where a failure has none."""
        parts = [f"{self.law}: {self.outcome}"]
        if self.error is not None and self.tolerance is not None:
            parts.append(f"{self.error:.1e} where {self.tolerance:.1e} is allowed")
        if self.first is not None:
            parts.append(f"first at {self.unit} {self.first:,}")
        reason = f": {self.note}" if self.error is None and not self.holds and self.note else ""
        return ", ".join(parts) + reason

    def require(self) -> None:
        """Raise AssertionError if the law fails."""
        if not self.holds:
            raise AssertionError(f"{self.line()}\n{self.explained()}")

    def explained(self) -> str:
        """Return statement, note and the reason for the tolerance, as an indented paragraph."""
        sentences = [self.statement, self.note]
        if self.tolerance is not None and self.why:
            sentences.append(f"{self.tolerance:.1e} is allowed because {self.why}")
        text = " ".join(f"{part[0].upper()}{part[1:].rstrip('.')}." for part in sentences if part)
        return fill(text, 110, initial_indent="    ", subsequent_indent="    ")


@final
@dataclass(frozen=True)
class Report:
    """The findings of a check, law by law; `print(report)` prints the table.

    Args:
        check: the name of the check.
        settings: what the implementation was expected to be.
        findings: one for each law, in the order of the checks.

    Examples:
        >>> report = Report("check_rotary", {"head_dim": 64}, (Finding("norms", "no vector changes its norm",
        ... "passes"),))
        >>> report.passed, report["norms"].outcome
        (True, 'passes')
    """

    check: str
    settings: Mapping[str, object]
    findings: tuple[Finding, ...] = field(default=())

    @property
    def passed(self) -> bool:
        """Whether no law fails."""
        return not self.failed

    @property
    def failed(self) -> tuple[Finding, ...]:
        """The laws that fail."""
        return tuple(finding for finding in self.findings if not finding.holds)

    def __getitem__(self, law: str) -> Finding:
        """Return the finding of a law by its name; raise KeyError if there is none."""
        for finding in self.findings:
            if finding.law == law:
                return finding
        raise KeyError(f"no law is called {law!r}; this report has: {', '.join(f.law for f in self.findings)}.")

    def require(self) -> None:
        """Raise AssertionError, with the table as its text, if any law fails."""
        if not self.passed:
            raise AssertionError(str(self))

    def as_dict(self) -> dict[str, object]:
        """Return the report as a dictionary that json.dumps writes; an infinite error becomes the text "inf"."""
        return {
            "check": self.check,
            "settings": dict(self.settings),
            "passed": self.passed,
            "findings": [asdict(finding) | _finite(finding) for finding in self.findings],
        }

    def __str__(self) -> str:
        """Return the table, and below it the explanations of the laws that fail or do not apply."""
        rows = [_HEADER, *(_cells(finding) for finding in self.findings)]
        widths = [max(len(row[column]) for row in rows) for column in range(5)]
        table = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        failed = [f"\n{finding.law}: fails\n{finding.explained()}" for finding in self.failed]
        noted = [f"{f.law} {f.outcome}: {f.note}." for f in self.findings if f.holds and f.note]
        return "\n".join([self._title(), "", *table, *failed, *([""] if noted else []), *noted])

    def _title(self) -> str:
        settings = ", ".join(f"{name}={value}" for name, value in self.settings.items())
        checked = [finding for finding in self.findings if finding.outcome != "does not apply"]
        outcome = f"{len(self.failed)} of {len(checked)} laws fail" if self.failed else f"all {len(checked)} laws pass"
        # The other laws alone do not show that a bias is correct.
        unchecked = any(f.law == "formula" and f.outcome == "does not apply" for f in self.findings)
        return f"{self.check}({settings}): {outcome}{', but the formula was not checked' if unchecked else ''}"


def _finite(finding: Finding) -> dict[str, str]:
    """Return an error that is not finite as text, for JSON has no number for it."""
    return {} if finding.error is None or isfinite(finding.error) else {"error": str(finding.error)}


def _cells(finding: Finding) -> tuple[str, str, str, str, str]:
    error = "" if finding.error is None else f"{finding.error:.1e}"
    tolerance = "" if finding.tolerance is None else f"{finding.tolerance:.1e}"
    first = "" if finding.first is None else f"{finding.unit} {finding.first:,}"
    return finding.law, finding.outcome, error, tolerance, first
