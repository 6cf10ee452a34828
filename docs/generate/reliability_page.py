"""docs/reliability.md, from the findings of `python -m reliability` in docs/reliability/."""

import inspect
import sys
from collections.abc import Iterable

from reliability.campaigns import CAMPAIGNS
from reliability.findings import Campaign

_INTRODUCTION = (
    "Each row is a way to break something, tried again and again on purpose. *Lost* counts the attempts after which a "
    "finished result was gone, something half written was read, a number was wrong, or a command ended with a "
    "traceback. The same trials run in small with `make test`, and whole with `make slow`."
)


def _about(name: str) -> list[str]:
    """Return what the module of a campaign says of it."""
    return [inspect.cleandoc(str(sys.modules[CAMPAIGNS[name].run.__module__].__doc__)), ""]


def page(campaigns: Iterable[tuple[str, Campaign]]) -> str:
    """Return the page.

    Args:
        campaigns: those that have findings, with their names.
    """
    lines = ["# What was tried to break it", "", _INTRODUCTION, ""]
    for name, found in campaigns:
        lines += [
            f"## {name.capitalize()}",
            "",
            *_about(name),
            f"`{found.command}`, {found.seconds:,.0f} s with torch {found.torch} and Python {found.python} on "
            f"{found.machine}, {found.date}.",
            "",
            "| tried | times | lost | seen |",
            "|---|---:|---:|---|",
            *[f"| {trial.tried} | {trial.times:,} | {trial.lost:,} | {trial.seen} |" for trial in found.trials],
            "",
            *[f"- {failure}" for trial in found.trials for failure in trial.failures],
            *([""] if any(trial.failures for trial in found.trials) else []),
        ]
    return "\n".join(lines)
