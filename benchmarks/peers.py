"""Other packages, each imported when a case needs it; one that is not installed is named in its row."""

import importlib
import os
import warnings
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any, TypeVar, cast

import torch

from benchmarks.case import Absent

PACKAGES = (
    "torch",
    "transformers",
    "rotary-embedding-torch",
    "x-transformers",
    "positional-encodings",
    "torchtune",
    "fbgemm-gpu-cpu",
    "liger-kernel",
    "cut-cross-entropy",
    "flash-attn",
    "gensim",
)
"""What the peers' numbers depend on."""

_FAILED: dict[str, str] = {}
F = TypeVar("F", bound=Callable[..., Any])


def load(module: str) -> Any:
    """Import a peer's module.

    Args:
        module: its name.

    Returns:
        The module.

    Raises:
        Absent: If it is not installed, or does not import here.

    Examples:
        >>> load("a_package_that_nobody_wrote")
        Traceback (most recent call last):
        benchmarks.case.Absent: not installed
    """
    if find_spec(module.partition(".")[0]) is None:
        raise Absent("not installed")
    if module in _FAILED:  # tried again, it would fail otherwise: half of it is loaded
        raise Absent(_FAILED[module])
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read by transformers when it is imported: nothing is downloaded
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of deprecations among the peers' own dependencies
            return importlib.import_module(module)
    except (ImportError, OSError, RuntimeError) as problem:
        _FAILED[module] = f"does not import: {str(problem).partition(chr(10))[0]}"
        raise Absent(_FAILED[module]) from problem


def compiled(function: F) -> F:
    """Compile for the shapes of the variant, as one graph.

    Args:
        function: of tensors.

    Returns:
        It, compiled at its first call; that raises where it does not compile as a whole.
    """
    return cast(F, torch.compile(function, dynamic=False, fullgraph=True))


def versions() -> dict[str, str]:
    """Return the versions of the packages that are installed."""
    installed = {}
    for package in PACKAGES:
        try:
            installed[package] = version(package)
        except PackageNotFoundError:
            continue
    return installed
