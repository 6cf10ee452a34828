"""What tests read from reports of whatwhere.testing."""

from whatwhere.testing import Report


def failed(report: Report) -> set[str]:
    return {finding.law for finding in report.failed}


def notes(report: Report) -> str:
    return "\n".join(finding.note for finding in report.findings)
