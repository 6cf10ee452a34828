"""Public names that are loaded when they are first used: reading files and results does without PyTorch."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def loader(package: str, home: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package: it loads a public name from the module that defines it.

    Args:
        package: its `__name__`.
        home: the module of each name, relative to the package; whatwhere. begins that of another package.

    Examples:
        >>> loader("whatwhere.analysis", {"neighbors": "nearest_neighbors"})("neighbors").__name__
        'neighbors'
    """

    def load(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = home[name] if home[name].startswith("whatwhere.") else f"{package}.{home[name]}"
        value = getattr(import_module(module), name)
        setattr(sys.modules[package], name, value)
        return value

    return load
