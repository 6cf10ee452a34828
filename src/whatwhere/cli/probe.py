"""probe: measure what a model's attention does with positions, by running it."""

from typing import Annotated

import typer

from whatwhere.cli.app import READ, AsJson, app, print_json
from whatwhere.errors import WhatWhereError
from whatwhere.escape import visible
from whatwhere.report.terminal import new_console, print_sections, progress


@app.command(rich_help_panel=READ)
def probe(
    model: Annotated[
        str,
        typer.Argument(
            help="Model type of transformers, a config.json or a folder with one, or a name at huggingface.co.",
            metavar="TYPE|PATH|NAME",
        ),
    ],
    weights: Annotated[
        bool, typer.Option("--weights", help="Load the folder's weights (safetensors) instead of random ones.")
    ] = False,
    trust_remote_code: Annotated[
        bool,
        typer.Option(
            "--trust-remote-code", help="Run Python code that lies in the folder: only if you trust its author."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Measure where positions enter a model, by layer: rotary, scale, bias, window, sink. No table of types is read.

    A small random model is built by transformers and run on short sequences; its configuration is read beside it, and
    what differs is listed.

    Example: whatwhere probe gemma3_text

    A folder: whatwhere probe path/to/model --weights

    A name: whatwhere probe openai-community/gpt2

    For scripts: whatwhere probe path/to/config.json --json
    """
    from whatwhere.models.checkpoint.tokenizer_files import quiet
    from whatwhere.models.configuration.read import from_huggingface
    from whatwhere.models.probe import probe as measured
    from whatwhere.models.probe.differences import differences_of_parts
    from whatwhere.models.probe.tiny import model_to_probe
    from whatwhere.report.probe import ProbeRecord, headline, sections

    with progress() as show_step:
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
    if as_json:
        print_json(record)
        return
    console = new_console()
    console.print(f"{visible(record.headline)}.", style="bold", soft_wrap=True)
    print_sections(sections(record), console)
