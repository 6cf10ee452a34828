"""check: a lint of a model, with an exit status."""

from typing import Annotated, Any

from typer import Option

from whatwhere.cli.app import READ, Base, Model, Pickles, Printed, Run, command, on_base


@command(READ)
def check(
    path: Model,
    show_step: Any,
    strict: Annotated[bool, Option("--strict", help="Exit with 1 for notes too.")] = False,
    run: Run = None,
    base: Base = None,
    allow_pickle: Pickles = False,
) -> Printed:
    """Check a model for contradictions and broken rows, one line for each: length, ties, special ids, tokens, rows.

    The exit status is 1 where there is an error or a warning. Notes are facts that its user has to know: padded rows,
    quantized tables, scalings that change short texts too, or whose cached keys are of one length. Of a config.json
    without weights its lengths, ids and tokens are checked.

    Example: whatwhere check path/to/model

    One file: whatwhere check path/to/model.gguf --strict
    """
    from whatwhere.analysis.lint import check as checked
    from whatwhere.report.lint import CheckRecord, headline, line, parts

    model = on_base(path, base, allow_pickle=allow_pickle)
    found = checked(model, run=run, allow_pickle=allow_pickle, progress=show_step)
    record = CheckRecord(headline=headline(found), lines=[*map(line, found.findings)], **vars(found))
    return Printed(record, parts(record), digits=6, failed=found.failed(strict))
