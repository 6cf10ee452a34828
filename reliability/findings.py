"""What a campaign found, as typed data: docs/reliability/NAME.json, one file for each campaign."""

import json
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import torch

from docs.generate.scale_page import Measured
from whatwhere.comparison.folder import write_json
from whatwhere.records import from_json

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "reliability"


@dataclass(frozen=True)
class Trial:
    """One way to break one thing, tried again and again.

    Args:
        tried: what was done, to what.
        times: how often.
        lost: how often something was lost, half written, wrong, or ended with a traceback.
        seen: what shows that the attempts reached something, with its numbers: how many runs were ended
            before they were done, how much memory was used.
        failures: the first few that lost something, each as text.
    """

    tried: str
    times: int
    lost: int
    seen: str
    failures: tuple[str, ...] = ()


@dataclass(frozen=True)
class Campaign(Measured):
    """All trials of one campaign.

    Args:
        command: that runs it.
        seconds: it took.
        trials: one for each thing.
    """

    command: str
    seconds: float
    trials: tuple[Trial, ...]


def write_campaign(name: str, command: str, seconds: float, trials: tuple[Trial, ...]) -> None:
    """Write what a campaign found.

    Args:
        name: of the campaign.
        command: that runs it.
        seconds: it took.
        trials: what was found.
    """
    versions = str(torch.__version__), platform.python_version(), platform.machine()
    found = Campaign(*versions, datetime.now(UTC).date().isoformat(), command, round(seconds), trials)
    write_json(FOLDER / f"{name}.json", found)


def read_campaigns() -> Iterator[tuple[str, Campaign]]:
    """Return the campaigns that have findings, with their names."""
    for path in sorted(FOLDER.glob("*.json")):
        yield path.stem, from_json(Campaign, json.loads(path.read_text(encoding="utf-8")), str(path))
