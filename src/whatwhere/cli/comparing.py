"""demo and compare: train schemes side by side."""

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whatwhere.cli.app import AsJson, app, told, whole_numbers
from whatwhere.errors import SettingError
from whatwhere.terminal import new_console, new_table, visible

if TYPE_CHECKING:
    from whatwhere.comparison import Report

OPTIONS = ("schemes", "task", "lengths", "seeds", "out", "files", "recipe", "executor", "workers", "progress")
"""What compare takes beside its settings."""
Workers = Annotated[int | None, typer.Option(help="Processes; the default is one for each core.", min=1)]


@app.command()
@told
def demo(
    out: Annotated[Path, typer.Option(help="The results folder.")] = Path("whatwhere-demo"),
    workers: Workers = None,
    as_json: AsJson = False,
) -> None:
    """Train the tutorials' Transformer under five ways of saying where, and report which holds beyond its length.

    About two minutes on two cores. Interrupted, the same command goes on.

    Example: whatwhere demo --out my-demo
    """
    from whatwhere.comparison import demo as run_demo

    _print_report(run_demo(out, workers=workers, progress=True), as_json)


@app.command()
@told
def compare(
    schemes: Annotated[
        list[str] | None,
        typer.Argument(help='Names of `whatwhere schemes`, mixtures "rotary+alibi" or by layer "rotary/none"; all.'),
    ] = None,
    task: Annotated[str, typer.Option(help="expressions, recall or text.")] = "expressions",
    file: Annotated[list[Path] | None, typer.Option(help="For the task text: a file to read; may be repeated.")] = None,
    lengths: Annotated[str | None, typer.Option(help="Lengths to test, as in 8,16,32.")] = None,
    seeds: Annotated[str, typer.Option(help='How many, or which: 5, or "0,7,8"; "7," is one.')] = "3",
    recipe: Annotated[str, typer.Option(help="quick, or author: the first tutorial's 50 epochs.")] = "quick",
    steps: Annotated[int | None, typer.Option(help="Optimizer steps of a run.")] = None,
    dim: Annotated[int | None, typer.Option(help="Features of a token vector.")] = None,
    layers: Annotated[int | None, typer.Option(help="Blocks.")] = None,
    heads: Annotated[int | None, typer.Option(help="Attention heads.")] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="Any other setting, as in --set direction=encoder.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The results folder.")] = Path("whatwhere-results"),
    workers: Workers = None,
    as_json: AsJson = False,
) -> None:
    """Train schemes side by side, in and beyond the trained length, and report what held.

    Example: whatwhere compare none rotary alibi --task text --file notes.txt --lengths 128,256 --seeds 5
    """
    from whatwhere.comparison import compare as run_compare
    from whatwhere.where.catalogue import catalogue

    given = _settings(setting or [], {"steps": steps, "dim": dim, "layers": layers, "heads": heads})
    report = run_compare(
        schemes or list(catalogue),
        task,
        None if lengths is None else whole_numbers("--lengths", lengths),
        _seeds(seeds),
        out,
        files=file or [],
        recipe=recipe,
        workers=workers,
        **given,
    )
    _print_report(report, as_json)


def _print_report(report: "Report", as_json: bool) -> None:
    if as_json:
        print(json.dumps(report.results))
        return
    header, rows = report.rows()
    table = new_table()
    for n, name in enumerate(header):
        table.add_column(name, justify="left" if n == 0 else "right")
    for row in rows:
        table.add_row(*row)
    console = new_console()
    console.print(table)
    task = report.results["task"]
    seeds = len(report.results["settings"]["seeds"])
    low, high = min(task["trained"]), max(task["trained"])
    console.print(
        f"\n{task['measure']} in the task {task['name']} on new sequences, "
        + ("one seed" if seeds == 1 else f"median (range) over {seeds} seeds")
        + f"; trained on {low if low == high else f'{low}-{high}'} {task['unit']}."
    )
    if report.page is None:
        console.print(
            "No report was written: this whatwhere was built without Node.js and has no page. In a checkout: make page."
        )
    else:
        console.print(f"Report: {visible(report.page.resolve())}", soft_wrap=True)
    console.print(f"To explore it: whatwhere studio {visible(shlex.quote(str(report.folder)))}", soft_wrap=True)


def _seeds(given: str) -> int | list[int]:
    numbers = whole_numbers("--seeds", given)
    return numbers[0] if len(numbers) == 1 and "," not in given else numbers


def _settings(given: Sequence[str], options: Mapping[str, Any]) -> dict[str, Any]:
    """Join what --set names to the settings that have options of their own."""
    found = {name: value for name, value in options.items() if value is not None}
    for part in given:
        name, equals, value = (word.strip() for word in part.partition("="))
        if not equals:
            raise SettingError(f"--set got {part!r}, but needs name=value, as in --set direction=encoder.")
        if name in OPTIONS:
            raise SettingError(f"--set takes settings, and {name} is none; its option, if any: whatwhere compare -h.")
        if name in found:
            raise SettingError(f"compare got {name} twice: {found[name]!r} and {value!r}. Give it once.")
        found[name] = _value(name, value)
    return found


def _value(name: str, value: str) -> Any:
    if name == "trained":
        return whole_numbers("--set trained", value)
    if "," in value:
        return [_value("", part) for part in value.split(",")]
    if value in ("True", "true", "False", "false"):
        return value.lower() == "true"
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value
