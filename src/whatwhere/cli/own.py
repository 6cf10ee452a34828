"""Schemes, tasks and models of the user's own, from files named by --module."""

import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whatwhere.errors import SettingError

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
    """Import the files of --module, and sort what they hold: schemes, a task, a model.

    Args:
        modules: each a file and a name in it, "FILE.py:NAME".

    Raises:
        SettingError: If a file or name is missing, is none of the three, or there are two tasks or two models.
    """
    from whatwhere.comparison import Task
    from whatwhere.comparison.own_model import is_model_builder

    own = Own()
    for spec in modules:
        name, loaded = _loaded(spec)
        if isinstance(loaded, Task) and not isinstance(loaded, type):
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


def _loaded(spec: str) -> tuple[str, Any]:
    """Import a file by its own name, so that worker processes can import it too."""
    file, _, name = spec.rpartition(":")
    path = Path(file).resolve()
    if not path.is_file() or path.suffix != ".py" or not path.stem.isidentifier():
        raise SettingError(f"--module got {spec!r}, but needs a Python file and a name in it, as in mine.py:build.")
    sys.path.insert(0, str(path.parent))
    module = importlib.import_module(path.stem)
    if Path(str(module.__file__)).resolve() != path:
        sys.path.remove(str(path.parent))
        raise SettingError(f"{path.name} has the name of another module, {module.__file__}: give it another name.")
    if not hasattr(module, name):
        raise SettingError(f"{path} has no {name!r} at its top.")
    return name, getattr(module, name)
