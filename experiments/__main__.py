"""List and run the experiments: `python -m experiments`, in the root of a checkout."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from experiments.bench import Experiment, Scope
from experiments.errata_page import by_scheme, measurement, reason
from experiments.evidence_page import headline, sections
from experiments.record import Evidence
from experiments.suite import TimeLeft, listing, run_evidence, select
from experiments.tutorials.all_claims import verdicts
from whatwhere.cli.app import PLAIN, AsJson, print_json, to_path
from whatwhere.cli.compare import Workers
from whatwhere.comparison import read_results
from whatwhere.errors import SettingError, WhatWhereError
from whatwhere.escape import visible
from whatwhere.long_work import part_of
from whatwhere.models.checkpoint import Checkpoint
from whatwhere.report.terminal import new_console, new_table, print_report
from whatwhere.report.text import duration

app = typer.Typer(add_completion=False, no_args_is_help=True, **PLAIN)


def main() -> None:
    """Run the command line.

    Raises:
        SystemExit: When the command ends, with its exit status.
    """
    try:
        app(prog_name="python -m experiments")
    except WhatWhereError as problem:
        print(f"experiments: {problem}", file=sys.stderr)
        sys.exit(1)


@app.command("list")
def list_experiments(as_json: AsJson = False) -> None:
    """List the experiments, also those that are not measured.

    Example: python -m experiments list
    """
    if as_json:
        print_json(listing())
        return
    table = new_table("id", "title", "question", "scope")
    for each in listing():
        table.add_row(each.id, each.title, each.question, each.scope)
    new_console().print(table)


@app.command()
def run(
    quick: Annotated[bool, typer.Option("--quick", help="What takes two cores five minutes: the default.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Everything: about five hours on two cores.")] = False,
    only: Annotated[list[str] | None, typer.Option(help="Id of an experiment, such as E3; may be repeated.")] = None,
    out: Annotated[Path | None, typer.Option(parser=to_path, help="Folder. Default: whatwhere-evidence-SCOPE.")] = None,
    model: Annotated[
        Path | None, typer.Option(parser=to_path, help="all-MiniLM-L6-v2, for E0's claims on trained rows.")
    ] = None,
    workers: Workers = None,
    as_json: AsJson = False,
) -> None:
    """Measure what tutorials and papers claim: claims, length, shift, text, tables, scalings, silent faults.

    Prints each statement with its source, what was measured (median and range over the seeds), and the verdict. Each
    experiment is kept in the folder, and in it each run; if interrupted, run the same command again to resume. On a
    terminal the time left is an estimate: what the committed evidence took, by the speed of what is finished here.

    Example: python -m experiments run --quick

    One of them, in full: python -m experiments run --full --only E3
    """
    if quick and full:
        raise SettingError("run got --quick and --full: pass one of them.")
    scope: Scope = "full" if full else "quick"
    time_left = TimeLeft(select(scope, only or []), scope)

    def left() -> str:
        return f"in all about {duration(time_left.seconds())} left"

    def tell(experiment: Experiment, finished: Evidence | None) -> None:
        if finished is None:
            time_left.begin(experiment)
            shown = f"; {left()}, estimated" if sys.stderr.isatty() else ""
            print(f"{experiment.id}: {experiment.title}{shown}", file=sys.stderr, flush=True)
        else:
            time_left.finish(finished)
            print(f"{experiment.id}: done, {finished.seconds:.0f} s", file=sys.stderr, flush=True)

    folder = out or Path(f"whatwhere-evidence-{scope}")
    checkpoint = None if model is None else Checkpoint.open(model)
    token = part_of.set(left)
    try:
        measured = run_evidence(folder, scope, only or [], workers=workers, checkpoint=checkpoint, on_experiment=tell)
    except KeyboardInterrupt:
        print(
            "experiments: interrupted. What is finished is kept; run the same command again to resume.", file=sys.stderr
        )
        raise typer.Exit(130) from None
    finally:
        part_of.reset(token)
    if as_json:
        print_json(measured)
        return
    console = new_console()
    print_report(sections(measured), console=console)
    console.print(f"\n{headline(measured)}")
    console.print(f"Kept in {visible(folder)}: one JSON file for each experiment.", soft_wrap=True)


@app.command()
def judge(
    results: Annotated[Path, typer.Argument(parser=to_path, help="The results folder of a comparison.")],
    as_json: AsJson = False,
) -> None:
    """Judge the claims of the tutorials by the runs of a comparison of yours.

    Example: whatwhere demo; python -m experiments judge whatwhere-demo
    """
    judgments = verdicts(read_results(results))
    if as_json:
        print_json(judgments)
        return
    table = new_table("id", "claim", "measured here", "verdict", "by scheme", "reason")
    for each in judgments:
        measured = measurement(each.measured) if each.runs else "–"
        table.add_row(each.id, each.claim, measured, each.verdict, by_scheme(each), reason(each))
    new_console().print(table)


if __name__ == "__main__":
    main()
