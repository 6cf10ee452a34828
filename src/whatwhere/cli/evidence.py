"""evidence: measure the claims of tutorials and papers on this machine, as one table."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from whatwhere.cli.app import LEARN, AsJson, app, exit_on_error, print_json, to_path
from whatwhere.cli.compare import ExecutorName, Workers
from whatwhere.errors import SettingError
from whatwhere.escape import visible


@app.command(rich_help_panel=LEARN)
@exit_on_error
def evidence(
    quick: Annotated[bool, typer.Option("--quick", help="What takes two cores five minutes: the default.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Everything: about five hours on two cores.")] = False,
    only: Annotated[list[str] | None, typer.Option(help="Id of an experiment, such as E3; may be repeated.")] = None,
    out: Annotated[Path | None, typer.Option(parser=to_path, help="Folder. Default: whatwhere-evidence-SCOPE.")] = None,
    model: Annotated[
        Path | None, typer.Option(parser=to_path, help="all-MiniLM-L6-v2, for E0's claims on trained rows.")
    ] = None,
    list_only: Annotated[bool, typer.Option("--list", help="List the experiments, and run none.")] = False,
    workers: Workers = None,
    executor: ExecutorName = None,
    as_json: AsJson = False,
) -> None:
    """Measure what tutorials and papers claim: claims, length, shift, text, tables, scalings, silent faults.

    Prints each statement with its source, what was measured (median and range over the seeds), and the verdict. Each
    experiment is kept in the folder, and in it each run; if interrupted, run the same command again to resume. On a
    terminal the time left is an estimate: what the committed evidence took, by the speed of what is finished here.

    Example: whatwhere evidence --quick

    On a cluster: whatwhere evidence --full --executor dask:tcp://10.0.0.1:8786
    """
    from whatwhere.evidence.bench import Experiment, Scope
    from whatwhere.evidence.record import Evidence
    from whatwhere.evidence.suite import TimeLeft, run_evidence, select
    from whatwhere.long_work import part_of
    from whatwhere.models.checkpoint import Checkpoint
    from whatwhere.report.evidence import headline, sections
    from whatwhere.report.terminal import new_console, print_sections
    from whatwhere.report.text import duration

    if quick and full:
        raise SettingError("evidence got --quick and --full: pass one of them.")
    if list_only:
        _list(as_json)
        return

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
        measured = run_evidence(
            folder, scope, only or [], workers=workers, executor=executor, checkpoint=checkpoint, on_experiment=tell
        )
    finally:
        part_of.reset(token)
    if as_json:
        print_json(measured)
        return
    console = new_console()
    print_sections(sections(measured), console)
    console.print(f"\n{headline(measured)}")
    console.print(f"Kept in {visible(folder)}: one JSON file for each experiment.", soft_wrap=True)


def _list(as_json: bool) -> None:
    from whatwhere.evidence.suite import listing
    from whatwhere.report.terminal import new_console, new_table

    experiments = listing()
    if as_json:
        print_json(experiments)
        return
    table = new_table("id", "title", "question", "scope")
    for each in experiments:
        table.add_row(each.id, each.title, each.question, each.scope)
    new_console().print(table)
