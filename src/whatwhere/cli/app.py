"""The command line: parse, call, print. Modules that take long to import are imported in the commands."""

import errno
import functools
import json
import os
import re
import shutil
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from inspect import Parameter, Signature, signature
from io import TextIOWrapper
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperGroup

from whatwhere import __version__
from whatwhere.errors import SettingError, WhatWhereError
from whatwhere.escape import visible
from whatwhere.records import to_json
from whatwhere.report.section import Part, Section
from whatwhere.report.terminal import ROWS, print_report, progress


class _Commands(TyperGroup):
    """Commands whose errors are messages, and whose descriptions are whole in the help of all."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; what it raises ends it with a message and an exit status."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except BaseException as problem:
            if (status := ended(problem, _KEPT.get(ctx.invoked_subcommand, _AGAIN))) is None:
                raise
        raise typer.Exit(status)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands, grouped by what a person wants, each with the first paragraph of its text."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for name, command in self.commands.items():
            text = " ".join((command.help or "").partition("\n\n")[0].split())
            groups.setdefault(getattr(command, "rich_help_panel", ""), []).append((name, text))
        for group, rows in groups.items():
            with formatter.section(group):
                formatter.write_dl(rows)


PLAIN: dict[str, Any] = {
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}
"""What all our command lines have in common."""

app = typer.Typer(
    name="whatwhere",
    help="The input layer of a Transformer: token embeddings and positional encodings.\n\n"
    'Example: whatwhere encode "The cat sat on the mat."',
    no_args_is_help=True,
    cls=_Commands,
    **PLAIN,
)

COMPARE = "Compare positional encodings"
LEARN = "Learn what they do"
READ = "Open a model"
CHANGE = "Change a checkpoint"
PORT = "Check a port"
PREPARE = "Prepare"
"""Groups of commands in `whatwhere --help`."""

Function = TypeVar("Function", bound=Callable[..., Any])

_NO_MEMORY = re.compile("allocate|out of memory|bad_alloc|create a primitive|start new thread|failed to map segment")


def to_path(text: str | Path) -> Path:
    """Return the path of an argument; an empty one, as of a variable that is not set, would be the current folder."""
    if not text:
        raise typer.BadParameter("the path is empty. Pass the path of a file or folder; the current folder is '.'.")
    return Path(text)


Model = Annotated[
    Path,
    typer.Argument(
        parser=to_path, help="File or folder of a model, in any format, or its name at huggingface.co: org/name."
    ),
]
Results = Annotated[Path, typer.Argument(parser=to_path, help="Folder that whatwhere compare or whatwhere demo wrote.")]
Which = Annotated[str, typer.Option(help="Table: input, output (lm_head), change (E - E0 of a run) or a tensor.")]
Pickles = Annotated[
    bool, typer.Option("--allow-pickle", help="Read pickles too, which can run code: only if you trust the author.")
]
Run = Annotated[str | None, typer.Option(help="Run of a results folder, as in rotary-0; or one model of a file.")]
Base = Annotated[
    Path | None,
    typer.Option(
        parser=to_path,
        help="Of an adapter of PEFT: folder or name of its base. Default: what it states, where that is here.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]


def on_base(path: Path, base: Path | None, *, allow_pickle: bool = False) -> Any:
    """Return a path, or the adapter that it is, opened on its base."""
    from whatwhere.models.checkpoint import Checkpoint

    return path if base is None else Checkpoint.open(path, base=base, allow_pickle=allow_pickle)


def to_paths(help: str, *names: str, **more: Any) -> Any:
    """Return an option whose value is a path."""
    return typer.Option(*names, parser=to_path, help=help, **more)


@dataclass(frozen=True)
class Printed:
    """What a command prints: with --json the record, of so many digits; else the report, of so many rows."""

    record: object
    report: Iterable[Section | Part]
    digits: int | None = None
    rows: int = ROWS
    failed: bool = False


def command(
    group: str, name: str | None = None, *, shows_steps: bool = True
) -> Callable[[Callable[..., Printed | None]], Callable[..., None]]:
    """Make a command of a function: it gets --json, and what it returns is printed.

    It shows its steps while it works, as reported or by its argument `show_step`, where it has one.
    """

    def make(function: Callable[..., Printed | None]) -> Callable[..., None]:
        asks = "show_step" in signature(function).parameters

        def run(as_json: AsJson = False, **given: Any) -> None:
            with progress() if shows_steps else nullcontext(print_message) as show_step:
                printed = function(**given, **({"show_step": show_step} if asks else {}))
            if printed is None:
                return
            if as_json:
                print_json(printed.record, printed.digits)
            else:
                print_report(printed.report, printed.rows)
            if printed.failed:
                raise typer.Exit(1)

        own = [each for name, each in signature(function).parameters.items() if name != "show_step"]
        as_json = signature(run).parameters["as_json"]
        return app.command(name, rich_help_panel=group)(with_parameters(run, function, [*own, as_json]))

    return make


def with_parameters(run: Function, function: Callable[..., Any], parameters: list[Parameter]) -> Function:
    """Return a function under the name and with the text of a different one, whose parameters typer reads as these."""
    functools.update_wrapper(run, function)
    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def complete_scheme(incomplete: str) -> list[str]:
    """Return the names that complete a scheme, the last part of a mixture, for the shell."""
    from whatwhere.where.catalogue import ALIASES, catalogue

    last = re.split(r"[+/]", incomplete)[-1]
    before = incomplete.removesuffix(last)
    return [before + name for name in (*catalogue, *ALIASES) if name.startswith(last)]


def main() -> None:
    """Run the command line."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the caller, as `>&-` does
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115, PTH123
        elif isinstance(stream, TextIOWrapper):
            # A character that the terminal's encoding lacks is shown as its code point instead of ending the program.
            stream.reconfigure(errors="backslashreplace")
    as_python = warnings.formatwarning
    warnings.formatwarning = functools.partial(_shown_warning, as_python)
    in_main_thread = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, _terminate) if in_main_thread else None
    try:
        app(prog_name="whatwhere")  # also as python -m whatwhere
    except BaseException as problem:  # what is raised before a command begins
        if (status := ended(problem)) is None:
            raise
        sys.exit(status)
    finally:
        warnings.formatwarning = as_python
        if in_main_thread:
            signal.signal(signal.SIGTERM, before)


def _shown_warning(
    as_python: Callable[..., str], message: Warning | str, category: type[Warning], filename: str, *place: Any
) -> str:
    """Return a warning of ours as messages are printed, without a line of our code; others as Python shows them."""
    if issubclass(category, UserWarning) and Path(filename).is_relative_to(Path(__file__).parents[1]):
        return f"{_of_program(str(message))}\n"
    return as_python(message, category, filename, *place)


class Terminated(KeyboardInterrupt):
    """The process got SIGTERM."""


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated


_AGAIN = "Run the same command again."
_KEPT = {
    **dict.fromkeys(("compare", "demo"), "What is finished is kept; run the same command again to resume."),
    **dict.fromkeys(
        ("resize", "extend", "trim", "repair", "convert", "map", "golden"),
        "An output is whole or not there: run the same command again to start over.",
    ),
}
"""What is left of commands that write."""


def ended(problem: BaseException, kept: str = _AGAIN) -> int | None:
    """Print what has ended a command, and return its exit status; None of what it cannot explain."""
    if isinstance(problem, WhatWhereError):
        print_message(str(problem))
        return 1
    stop: BaseException | None = problem
    while stop is not None:
        if isinstance(stop, KeyboardInterrupt):  # during which another library may have failed to clean up
            print_message(f"{'ended by SIGTERM' if isinstance(stop, Terminated) else 'interrupted'}. {kept}")
            return 143 if isinstance(stop, Terminated) else 130
        stop = stop.__context__
    if BrokenPipeError in (type(problem), type(problem.__context__)):  # rich exits from one with 1
        _silence_stdout()  # the reader has gone, as `| head` does
        return 141
    # Typer explains a wrong call itself.
    if hasattr(problem, "exit_code") or (reason := _own_fault(problem) or refused(problem)) is None:
        return None
    _silence_stdout()  # where the disk is full, Python would complain again while it ends
    print_message(reason)
    return 1


OWN_FILES = set[Path]()  # files that the user has named by --module, and the folders of packages


def _own_fault(problem: BaseException) -> str | None:
    """Return what a file of the user's own raised, in one sentence with its place; None of any other error."""
    calls = [(Path(call.filename).resolve(), call.lineno) for call in traceback.extract_tb(problem.__traceback__)]
    if isinstance(problem, SyntaxError):
        calls.append((Path(problem.filename or "").resolve(), problem.lineno))
    own = [f"{path}, line {line}" for path, line in calls if OWN_FILES & {path, *path.parents}]
    way_out = "--module runs this file: correct it, and run the same command again."
    return f"{own[-1]}, raised {type(problem).__name__}: {problem}.\n{way_out}" if own else None


def refused(problem: BaseException) -> str | None:
    """Return what the system refused, and the way out; None of any other error."""
    text = str(problem).strip() or type(problem).__name__
    number = problem.errno if isinstance(problem, OSError) else None
    # PyTorch's allocators raise RuntimeError, and an import whose library does not fit ImportError.
    if number == errno.ENOMEM or isinstance(problem, MemoryError) or _NO_MEMORY.search(text):
        return f"too little memory: {text}.\nChoose smaller sizes, shorter lengths, or a shorter text."
    if not isinstance(problem, OSError):
        return None
    if number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        way = "Make room, or choose another folder, and run the same command again; what is finished is kept."
    elif number in (errno.EROFS, errno.EACCES, errno.EPERM):
        way = "Choose another path, or change who may read and write it."
    elif number in (errno.EMFILE, errno.ENFILE):
        way = "Allow more open files: ulimit -n 4096."
    else:
        return f"the system refused: {text}."
    return f"{text}.\n{way}"


def program() -> str:
    """Return how this program is called from where the user is: by its name, by its path, or as a module."""
    called = Path(sys.argv[0])
    if called.name != "whatwhere":
        return "whatwhere" if shutil.which("whatwhere") else "python -m whatwhere"
    found = shutil.which("whatwhere")
    if found is not None and called.exists() and Path(found).samefile(called):
        return "whatwhere"
    return str(called)


def print_message(message: str) -> None:
    """Print a message for the user on standard error: standard output may be read by a program."""
    print(_of_program(message), file=sys.stderr)


def _of_program(message: str) -> str:
    return "whatwhere: " + "\n".join(map(visible, message.split("\n")))


def print_json(result: object, digits: int | None = None) -> None:
    """Print a dataclass, or a sequence of them, as one line of JSON; `digits` are significant, None keeps all."""
    print(json.dumps(to_json(result, digits), allow_nan=False), flush=True)  # the studio runs on after its line


def _silence_stdout() -> None:
    """Redirect standard output to the null device, so that flushing it raises nothing."""
    with suppress(OSError):  # not every stream is a file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_version(requested: bool) -> bool:
    if requested:
        typer.echo(__version__)  # unlike print, it writes at once, and errors are caught where they occur
        raise typer.Exit
    return requested


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    pass


def whole_numbers(option: str, text: str) -> list[int]:
    """Parse a comma-separated list of whole numbers."""
    try:
        # A comma may end the list: "7," is a list of one.
        return [int(part) for part in text.strip().removesuffix(",").split(",")] if text.strip(" ,") else []
    except ValueError:
        raise SettingError(f"{option} got {text!r}, but needs comma-separated whole numbers, as in 8,16,32.") from None
