"""The runs of a comparison: their names, and which of them a page begins with."""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from whatwhere.errors import SettingError, WhatWhereError
from whatwhere.escape import quoted, visible
from whatwhere.studio.schemes import scheme_of
from whatwhere.studio.session import Session

if TYPE_CHECKING:
    from whatwhere.comparison.results import RunResult


def first_names(session: Session) -> list[str]:
    """Return the run of the first seed of each scheme, that which views begin with first.

    Args:
        session: what is open; nothing but a comparison has runs.
    """
    if session.kind != "results":
        return []
    return sorted(map(run_name, session.results.first_runs), key=lambda name: name != session.run)


def of_first_runs(session: Session, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the settings of a view for the first run of each scheme of a comparison; else the settings alone."""
    if not session.runs:
        return [dict(settings)]
    return [{**settings, "scheme": name, "run": name} for name in first_names(session) if _is_built(session, name)]


def _is_built(session: Session, name: str) -> bool:
    """Return whether a run's positional encoding can be built: the code of a user's own is not in the results."""
    try:
        scheme_of(session, name)
    except WhatWhereError:
        return False
    return True


def titles(session: Session) -> list[str]:
    """Return how each run is shown: its scheme and seed.

    Args:
        session: what is open; nothing but a comparison has runs.
    """
    records = session.checkpoint.metadata.get("runs") if session.runs else None
    named = {
        PurePosixPath(str(record.get("file"))).stem: f"{visible(str(record.get('scheme')))}, seed {record.get('seed')}"
        for record in (records if isinstance(records, list) else [])
    }
    return [named.get(name, name) for name in session.runs]


def find_run(session: Session, name: str) -> "RunResult":
    """Return a run of the comparison by its name.

    Args:
        name: as its tensors begin, such as "rotary-0".

    Raises:
        SettingError: If there is no such run.
    """
    for run in session.results.runs:
        if run_name(run) == name:
            return run
    names = ", ".join(map(run_name, session.results.runs[:4]))
    raise SettingError(f"this comparison has no run {quoted(name)}; it has {names}, ....")


def run_name(run: "RunResult") -> str:
    """Return the name of a run as its tensors begin, "rotary-0"; one that was trained here has no file."""
    return PurePosixPath(run.file).stem if run.file else f"{run.scheme}-{run.seed}"
