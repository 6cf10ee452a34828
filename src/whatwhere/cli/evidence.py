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
    full: Annotated[bool, typer.Option("--full", help="Everything: about two hours on two cores.")] = False,
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
    experiment is kept in the folder; if interrupted, run the same command again to resume.

    Example: whatwhere evidence --quick

    On a cluster: whatwhere evidence --full --executor dask:tcp://10.0.0.1:8786
    """
    from whatwhere.evidence.bench import Experiment, Scope
    from whatwhere.evidence.record import Evidence
    from whatwhere.evidence.suite import run_evidence
    from whatwhere.models.checkpoint import Checkpoint
    from whatwhere.report.evidence import headline, sections
    from whatwhere.report.terminal import new_console, print_sections

    if quick and full:
        raise SettingError("evidence got --quick and --full: pass one of them.")
    if list_only:
        _list(as_json)
        return

    def tell(experiment: Experiment, finished: Evidence | None) -> None:
        if finished is None:
            print(f"{experiment.id}: {experiment.title}", file=sys.stderr, flush=True)
        else:
            print(f"{experiment.id}: done, {finished.seconds:.0f} s", file=sys.stderr, flush=True)

    scope: Scope = "full" if full else "quick"
    folder = out or Path(f"whatwhere-evidence-{scope}")
    checkpoint = None if model is None else Checkpoint.open(model)
    measured = run_evidence(
        folder, scope, only or [], workers=workers, executor=executor, checkpoint=checkpoint, on_experiment=tell
    )
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
