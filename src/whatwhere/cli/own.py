"""Schemes, tasks and models of the user's own, from files named by --module."""

import importlib
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whatwhere.errors import SettingError, WhatWhereError

if TYPE_CHECKING:
    from whatwhere.comparison import Task
    from whatwhere.comparison.model import Build
    from whatwhere.comparison.own_model import BuildModel


@dataclass
class Own:
    """What the files of --module hold.

    Args:
        schemes: functions that build schemes, by name.
        task: or None.
        model: what builds a model, or None.
    """

    schemes: "dict[str, Build]" = field(default_factory=dict)
    task: "Task | None" = None
    model: "BuildModel | None" = None


def load_own(modules: Sequence[str]) -> Own:
    """Import the files of --module, and sort what they hold: schemes, a task, a model."""
    from whatwhere.comparison.own_model import is_model_builder
    from whatwhere.comparison.tasks import is_task

    own = Own()
    for spec in modules:
        name, loaded = _loaded(spec)
        if is_task(loaded):
            if own.task is not None:
                raise SettingError("--module got two tasks, but a comparison has one.")
            own.task = loaded
        elif is_model_builder(loaded):
            if own.model is not None:
                raise SettingError("--module got two models, but a comparison has one.")
            own.model = loaded
        elif callable(loaded) and not isinstance(loaded, type):
            own.schemes[name] = loaded
        else:
            raise SettingError(
                f"--module {spec} is a {type(loaded).__name__}, but needs a function build(dim, num_heads, max_length) "
                "that returns a Where, a class or function of (vocab_size, wheres, settings) that makes a model, or a "
                "Task."
            )
    return own


@contextmanager
def report_own_errors(modules: Sequence[str]) -> Iterator[None]:
    """Report what the user's own files raise in one sentence, with its place; other errors pass."""
    try:
        yield
    except (Exception, SystemExit) as problem:
        files = {Path(spec.rpartition(":")[0]).resolve() for spec in modules}
        calls = [(call.filename, call.lineno) for call in traceback.extract_tb(problem.__traceback__)]
        if isinstance(problem, SyntaxError):
            calls.append((problem.filename or "", problem.lineno))
        own = [call for call in calls if Path(call[0]).resolve() in files]
        if not own or isinstance(problem, WhatWhereError):
            raise
        file, line = own[-1]
        raise SettingError(
            f"{file}, line {line}, raised {type(problem).__name__}: {problem}.\n"
            "--module runs this file: correct it, and run the same command again."
        ) from problem


def _loaded(spec: str) -> tuple[str, Any]:
    """Import a file by its own name, so that worker processes can import it too."""
    file, _, name = spec.rpartition(":")
    path = Path(file).resolve()
    if not path.is_file() or path.suffix != ".py" or not path.stem.isidentifier():
        raise SettingError(f"--module got {spec!r}, but needs a Python file and a name in it, as in mine.py:build.")
    sys.path.insert(0, str(path.parent))
    with report_own_errors([spec]):
        module = importlib.import_module(path.stem)
    if Path(str(module.__file__)).resolve() != path:
        sys.path.remove(str(path.parent))
        raise SettingError(f"{path.name} has the name of another module, {module.__file__}: give it another name.")
    if not hasattr(module, name):
        raise SettingError(f"{path} has no {name!r} at its top.")
    return name, getattr(module, name)
