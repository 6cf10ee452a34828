"""The reference: a page for each group of public names, from their docstrings, and one of the command line."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType

from typer.testing import CliRunner

import whatwhere as ww
from whatwhere.cli import app

GROUPS: Mapping[str, tuple[str, Sequence[str]]] = {
    "tokens": ("Tokens", ("InputLayer", "TokenEmbedding", "RowAdamW", "parameters", "text")),
    "positions": ("Positions", ("positions", "Positions")),
    "where": (
        "Where, here, doors",
        ("Where", "Here", "bind", "KVCache", "Window", "Sink", "InputEncoding", "QueryKeyMap", "ScoreBias"),
    ),
    "catalogue": ("Catalogue", ("scheme", "catalogue", "load_where")),
    "input": ("Door 1: input", ("Sinusoidal", "AxialSinusoidal", "Fourier", "Learned")),
    "query_key": (
        "Door 2: query_key",
        (
            *("Rotary", "LearnedRotary", "AxialRotary", "MixedRotary", "MultimodalRotary", "XPos", "PoPE", "FoPE"),
            *("SelfExtend", "DualChunk", "CARoPE", "SelectiveRoPE", "SSMax", "QueryTemperature"),
            *("scaling", "temperature", "rotary_layout"),
        ),
    ),
    "score": (
        "Door 3: score",
        (
            *("ALiBi", "KERPLE", "Sandwich", "FIRE", "FoX", "CoPE", "Inkling"),
            *("T5", "Shaw", "Swin", "SwinV2", "SAM", "TransformerXL", "DeBERTa"),
        ),
    ),
    "frequencies": ("Frequencies", ("frequencies",)),
    "models": ("Models", ("read", "Checkpoint", "inspect", "check", "from_huggingface", "patch", "caches", "probe")),
    "analysis": ("Analysis", ("neighbors", "analogy", "analysis", "show", "export")),
    "compare": ("Compare", ("compare", "comparison")),
    "testing": ("Testing", ("testing",)),
    "textbook": ("Textbook code", ("reference",)),
    "errors": ("Errors and switches", ("WhatWhereError", "errors", "pytorch_only")),
}
"""Title and public names of each page, by its file; names in no group are on a last page."""

_HELPERS = {"FrequencyCache", "Unscaled", "or_unscaled", "read_bytes", "read_text", "to_device"}


def write_reference(folder: Path) -> str:
    """Write the pages of the reference, and return their part of the navigation, in TOML."""
    folder.mkdir(parents=True, exist_ok=True)
    entries = []
    for stem, (title, names) in groups().items():
        (folder / f"{stem}.md").write_text(group_page(title, names), encoding="utf-8")
        entries.append(f'{{ "{title}" = "reference/{stem}.md" }}')
    (folder / "commands.md").write_text(command_page(), encoding="utf-8")
    entries.append('{ "Command line" = "reference/commands.md" }')
    return f"[{', '.join(entries)}]"


def groups() -> Mapping[str, tuple[str, Sequence[str]]]:
    """Return the groups, and a last one of the public names that are in none."""
    grouped = {name for _, names in GROUPS.values() for name in names}
    left = sorted(set(ww.__all__) - grouped - {"__version__"})
    return {**GROUPS, "more": ("More", left)} if left else GROUPS


def group_page(title: str, names: Sequence[str]) -> str:
    """Return a page of docstrings: of each name, or of each public member of a module."""
    parts = [f"# {title}"]
    for name in names:
        value = getattr(ww, name)
        if isinstance(value, ModuleType):
            parts += [f"## whatwhere.{name}", inspect.cleandoc(value.__doc__ or ""), *_entries(members(value), 3)]
        else:
            parts += _entries([f"whatwhere.{name}"], 2)
    return "\n\n".join(parts) + "\n"


def members(module: ModuleType) -> list[str]:
    """Return the paths of the public functions and classes that are a module's own, or that its package lends it."""
    names = getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
    home = module.__name__
    paths = []
    for name in sorted(set(names) - _HELPERS):
        value = getattr(module, name)
        if (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__.startswith(home):
            paths.append(f"{value.__module__}.{name}")
    return sorted(set(paths), key=lambda path: path.rpartition(".")[2].lower())


def command_page() -> str:
    """Return the page of the commands: what `--help` prints for each."""
    parts = ["# Command line", "What `whatwhere COMMAND --help` prints, for each command."]
    for name, _ in commands():
        shown = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"})
        parts += [f"## {name}", f"```text\n{shown.output.strip()}\n```"]
    return "\n\n".join(parts) + "\n"


def commands() -> Iterator[tuple[str, Callable[..., object]]]:
    """Iterate over the commands: their names and functions."""
    for command in app.registered_commands:
        if command.callback is not None and not command.hidden:
            yield command.name or command.callback.__name__, command.callback


def _entries(paths: Sequence[str], level: int) -> list[str]:
    return [f"::: {path}\n    options:\n      heading_level: {level}" for path in paths]
