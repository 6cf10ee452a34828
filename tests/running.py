"""Commands and scripts, run in this process."""

import importlib.util
import json
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from jsonschema import Draft202012Validator

from whatwhere import cli


class Output(NamedTuple):
    """The status of a command, and what it printed."""

    status: int
    out: str
    err: str


def whatwhere(*words: str | Path) -> Output:
    """Run a command in this process, as `whatwhere WORDS` does; what it prints with --json fits its schema."""
    done = program(cli.main, *words)
    if "--json" in words and done.out and not {"-h", "--help"} & set(words):
        fitting(str(words[0]), done.out)
    return done


def program(main: Callable[[], None], *words: str | Path) -> Output:
    """Run a program in this process, by the function that reads its command line."""
    out, err = StringIO(), StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["whatwhere", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
    return Output(int(ended.value.code or 0), out.getvalue(), err.getvalue())


def json_of(*words: str | Path) -> dict[str, Any]:
    """Run a command with --json that succeeds without a message, and return its JSON, which fits its schema."""
    status, out, err = whatwhere(*words, "--json")
    assert (status, err) == (0, "")
    result: dict[str, Any] = json.loads(out)
    return result


def fitting(command: str, printed: str) -> Any:
    """Return what a command has printed with --json, in whichever process, after a comparison with its schema."""
    value = json.loads(printed)
    schema(command).validate(value)
    return value


@cache
def schema(command: str) -> Draft202012Validator:
    """Return the schema of what a command prints with --json."""
    file = Path(__file__).parents[1] / "docs" / "json" / f"{command}.json"
    return Draft202012Validator(json.loads(file.read_text(encoding="utf-8")))


def error_of(*words: str | Path) -> str:
    """Run a command that fails and prints nothing, and return its message."""
    status, out, err = whatwhere(*words)
    assert (status, out) == (1, ""), (words, err)
    assert err.startswith("whatwhere: ")
    return err


def script(path: Path, name: str | None = None) -> ModuleType:
    """Import a file outside the package.

    Args:
        name: of the module; that of the file by default.
    """
    spec = importlib.util.spec_from_file_location(name or path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
