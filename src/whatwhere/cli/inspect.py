"""inspect and diff: findings on the input layer of a checkpoint, and on the difference between two."""

from pathlib import Path
from typing import Annotated

import typer

from whatwhere.cli.app import READ, AsJson, Model, Pickles, Run, Which, app, print_json, to_path
from whatwhere.errors import SettingError
from whatwhere.escape import visible
from whatwhere.report.terminal import new_console, print_sections, progress


@app.command(rich_help_panel=READ)
def inspect(
    path: Model,
    sections: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated, some of: sizes, tables, variance, norms, spectrum, diagnostics, positions, rotary, "
            "biases. Default: all."
        ),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(parser=to_path, help="Also export the studio's page as one HTML file.")
    ] = None,
    run: Run = None,
    text: Annotated[
        list[Path] | None,
        typer.Option(
            parser=to_path,
            help="UTF-8 file, a document, whose n-grams are looked up in tables of hashed n-grams; several: repeat it.",
        ),
    ] = None,
    rows: Annotated[int, typer.Option(help="Rows of long tables to print.", min=1)] = 12,
    seed: Annotated[int, typer.Option(help="Random seed for row sampling.", min=0)] = 0,
    allow_pickle: Pickles = False,
    as_json: AsJson = False,
) -> None:
    """Inspect a checkpoint: parameters, token norms, under-trained tokens, position embeddings, RoPE, biases.

    Of a config.json without weights it prints sizes and positions; of a results folder it takes one run.

    A run: whatwhere inspect whatwhere-demo --run rotary-0

    Example: whatwhere inspect path/to/model --report model.html

    From huggingface.co, only the bytes that are needed: whatwhere inspect openai-community/gpt2@main

    Rows that a text reads of hashed n-grams: whatwhere inspect path/to/model --sections tables --text notes.txt

    For scripts: whatwhere inspect path/to/model --sections norms,diagnostics --json
    """
    from whatwhere.analysis.inspection import check_sections, examine, opened
    from whatwhere.analysis.subject import EXAMPLES, EXAMPLES_ON_PAGE, Subject
    from whatwhere.report import inspection as texts
    from whatwhere.what.text import read_text

    names = None if sections is None else [name.strip() for name in sections.split(",") if name.strip()]
    requested = check_sections(names)
    documents = tuple(map(read_text, text or ()))
    with progress() as show_step:
        checkpoint = opened(path, run, allow_pickle=allow_pickle)
        if documents and not any(table.kind == "hashed n-grams" for table in checkpoint.token_tables):
            raise SettingError(
                f"--text counts which rows of hashed n-grams a text reads, but {checkpoint.path} has no such "
                "table.\nOmit it."
            )
        if report is not None and checkpoint.format in ("run", "configuration"):
            raise SettingError(
                f"--report exports the page of a model's tables, but this is a {checkpoint.format}.\n"
                "Of a results folder: whatwhere studio RESULTS --export page.html."
            )
        if report is not None:
            from whatwhere.studio.export import check_file

            check_file(report, checkpoint)  # before the work
        subject = Subject(checkpoint, seed, show_step, documents, EXAMPLES if report is None else EXAMPLES_ON_PAGE)
        inspection = examine(subject, requested)
        if report is not None:
            from whatwhere.studio.export import write_inspection

            write_inspection(checkpoint, inspection, report, show_step)
    if as_json:
        print_json(texts.InspectionRecord(texts.headline(inspection), **vars(inspection)), digits=6)
        return
    console = new_console()
    console.print(visible(inspection.path), style="bold", soft_wrap=True)
    console.print(f"{visible(texts.headline(inspection))}.")
    print_sections(texts.sections(inspection), console, rows)
    if report is not None:
        console.print(f"\nReport: {visible(report.resolve())}", soft_wrap=True)


@app.command(rich_help_panel=READ)
def diff(
    first: Model,
    second: Annotated[Path, typer.Argument(parser=to_path, help="Another one, in any supported format.")],
    k: Annotated[int, typer.Option("-k", help="Nearest neighbors to compare.", min=1)] = 10,
    sample: Annotated[int, typer.Option(help="Tokens to sample, whose neighbors are compared.", min=1)] = 512,
    rows: Annotated[int, typer.Option(help="Rows that moved most to list.", min=0)] = 10,
    table: Which = "input",
    seed: Annotated[int, typer.Option(help="Random seed for sampling.", min=0)] = 0,
    allow_pickle: Pickles = False,
    as_json: AsJson = False,
) -> None:
    """Compare the input layers of two checkpoints: token embeddings, nearest neighbors, positions, configurations.

    Between two types it measures what a cast or a quantization changed. Two configurations alone are compared too.

    Example: whatwhere diff path/to/model path/to/model.gguf

    For scripts: whatwhere diff path/to/model path/to/other --json
    """
    from whatwhere.analysis.checkpoint_difference import difference
    from whatwhere.report import difference as texts

    with progress() as show_step:
        changes = difference(
            first,
            second,
            table=table,
            k=k,
            queries=sample,
            rows=rows,
            seed=seed,
            allow_pickle=allow_pickle,
            progress=show_step,
        )
    if as_json:
        print_json(texts.DifferenceRecord(texts.headline(changes), **vars(changes)), digits=6)
        return
    console = new_console()
    for name, side in (("A", changes.first), ("B", changes.second)):
        console.print(f"{name}  {visible(side.path)} ({visible(side.format)})", soft_wrap=True)
    console.print(f"{visible(texts.headline(changes))}.")
    print_sections(texts.sections(changes), console, max(rows, 1))
