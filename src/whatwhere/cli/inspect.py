"""inspect, diff and probe: findings on a checkpoint, on the difference between two, and on a model that is run."""

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from whatwhere.cli.app import READ, Base, Model, Pickles, Printed, Run, Which, command, on_base, to_path, to_paths
from whatwhere.cli.compare import Modules, load_own
from whatwhere.errors import SettingError, WhatWhereError
from whatwhere.report.section import Part, Section


@command(READ)
def inspect(
    path: Model,
    show_step: Any,
    sections: Annotated[
        str | None,
        Option(
            help="Comma-separated, some of: sizes, tables, variance, norms, spectrum, diagnostics, positions, rotary, "
            "biases. Default: all."
        ),
    ] = None,
    report: Annotated[Path | None, to_paths("Also export the studio's page as one HTML file.")] = None,
    run: Run = None,
    base: Base = None,
    text: Annotated[
        list[Path] | None,
        to_paths(
            "UTF-8 file, a document, whose n-grams are looked up in tables of hashed n-grams; several: repeat it."
        ),
    ] = None,
    rows: Annotated[int, Option(help="Rows of long tables to print.", min=1)] = 12,
    seed: Annotated[int, Option(help="Random seed for row sampling.", min=0)] = 0,
    module: Modules = None,
    allow_pickle: Pickles = False,
) -> Printed:
    """Inspect a checkpoint: parameters, token norms, under-trained tokens, position embeddings, RoPE, biases.

    Of a config.json without weights it prints sizes and positions; of a results folder it takes one run.

    A run: whatwhere inspect whatwhere-demo --run rotary-0

    Example: whatwhere inspect path/to/model --report model.html

    From huggingface.co, only the bytes that are needed: whatwhere inspect openai-community/gpt2@main

    Rows that a text reads of hashed n-grams: whatwhere inspect path/to/model --sections tables --text notes.txt

    An adapter of PEFT: whatwhere inspect path/to/adapter --base path/to/model
    """
    from whatwhere.analysis.inspection import check_sections, examine, opened
    from whatwhere.analysis.subject import EXAMPLES, EXAMPLES_ON_PAGE, Subject
    from whatwhere.models.load_where import own_sources
    from whatwhere.report import inspection as texts
    from whatwhere.report.section import source_tables
    from whatwhere.what.text import read_text

    names = None if sections is None else [name.strip() for name in sections.split(",") if name.strip()]
    requested = check_sections(names)
    documents = tuple(map(read_text, text or ()))
    checkpoint = opened(on_base(path, base, allow_pickle=allow_pickle), run, allow_pickle=allow_pickle)
    checkpoint.builds = load_own(module or []).schemes
    if documents and not any(table.kind == "hashed n-grams" for table in checkpoint.token_tables):
        raise SettingError(
            f"--text counts which rows of hashed n-grams a text reads, but {checkpoint.path} has no such table.\n"
            "Omit it."
        )
    examples, lines = EXAMPLES, []
    if report is not None:
        if checkpoint.format in ("run", "configuration"):
            raise SettingError(
                f"--report exports the page of a model's tables, but this is a {checkpoint.format}.\n"
                "Of a results folder: whatwhere studio RESULTS --export page.html."
            )
        from whatwhere.studio.export import check_file, write_inspection

        check_file(report, checkpoint)  # before the work
        examples, lines = EXAMPLES_ON_PAGE, [f"Report: {report.resolve()}"]
    inspection = examine(Subject(checkpoint, seed, show_step, documents, examples), requested)
    if report is not None:
        write_inspection(checkpoint, inspection, report, show_step)
    headline = texts.headline(inspection)
    lines += [] if checkpoint.base is None else [f"Base of this adapter: {checkpoint.base}"]
    shown: list[Section | Part] = [Section("", inspection.path, [f"{headline}."]), *texts.sections(inspection), *lines]
    sources = own_sources(checkpoint, checkpoint.path.name) if checkpoint.format == "run" else {}
    shown += [Section("source", "The scheme of your own", [*source_tables(sources)])] if sources else []
    return Printed(texts.InspectionRecord(headline, **vars(inspection), sources=sources), shown, digits=6, rows=rows)


@command(READ)
def diff(
    first: Model,
    second: Annotated[Path, Argument(parser=to_path, help="Another one, in any supported format.")],
    show_step: Any,
    k: Annotated[int, Option("-k", help="Nearest neighbors to compare.", min=1)] = 10,
    sample: Annotated[int, Option(help="Tokens to sample, whose neighbors are compared.", min=1)] = 512,
    rows: Annotated[int, Option(help="Rows that moved most to list.", min=0)] = 10,
    table: Which = "input",
    base: Base = None,
    seed: Annotated[int, Option(help="Random seed for sampling.", min=0)] = 0,
    allow_pickle: Pickles = False,
) -> Printed:
    """Compare the input layers of two checkpoints: token embeddings, nearest neighbors, positions, configurations.

    Between two types it measures what a cast or a quantization changed, between a base and an adapter of it, what that
    changes. Two configurations alone are compared too.

    Example: whatwhere diff path/to/model path/to/model.gguf
    """
    from whatwhere.analysis.checkpoint_difference import difference
    from whatwhere.report import difference as texts

    other = on_base(second, base, allow_pickle=allow_pickle)
    options: dict[str, Any] = {"table": table, "k": k, "queries": sample, "rows": rows, "seed": seed}
    changes = difference(first, other, **options, allow_pickle=allow_pickle, progress=show_step)
    headline = texts.headline(changes)
    sides = [f"{name}  {side.path} ({side.format})" for name, side in (("A", changes.first), ("B", changes.second))]
    report: list[Section | Part] = [*sides, f"{headline}.", *texts.sections(changes)]
    return Printed(texts.DifferenceRecord(headline, **vars(changes)), report, digits=6, rows=max(rows, 1))


@command(READ)
def probe(
    model: Annotated[
        str,
        Argument(
            help="Model type of transformers, a config.json or a folder with one, or a name at huggingface.co.",
            metavar="TYPE|PATH|NAME",
        ),
    ],
    show_step: Any,
    weights: Annotated[
        bool, Option("--weights", help="Load the folder's weights (safetensors) instead of random ones.")
    ] = False,
    trust_remote_code: Annotated[
        bool,
        Option("--trust-remote-code", help="Run Python code that lies in the folder: only if you trust its author."),
    ] = False,
) -> Printed:
    """Measure where positions enter a model, by layer: rotary, scale, bias, window, sink. No table of types is read.

    A small random model is built by transformers and run on short sequences; its configuration is read beside it, and
    what differs is listed.

    Example: whatwhere probe gemma3_text

    A folder: whatwhere probe path/to/model --weights
    """
    from whatwhere.models.checkpoint.tokenizer_files import quiet
    from whatwhere.models.configuration.read import from_huggingface
    from whatwhere.models.probe import probe as measured
    from whatwhere.models.probe.differences import differences_of_parts
    from whatwhere.models.probe.tiny import model_to_probe
    from whatwhere.report.probe import ProbeRecord, headline, sections

    show_step("building the model")
    built, _ = model_to_probe(model, weights=weights, trust_remote_code=trust_remote_code)
    show_step("probing")
    with quiet():
        found = measured(built)
    try:
        listed, unread = differences_of_parts(found, lambda part: from_huggingface(built.config, part=part)), None
    except WhatWhereError as problem:
        listed, unread = None, str(problem)
    record = ProbeRecord(headline(found), found, listed, unread)
    return Printed(record, [Section("", f"{record.headline}.", []), *sections(record)])
