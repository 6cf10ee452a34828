"""plan: what a token table costs on many ranks, by arithmetic."""

from typing import Annotated

import typer

from whatwhere.cli.app import AsJson, app, exit_on_error, print_json
from whatwhere.report.terminal import new_console, print_sections


def _whole(text: str | int) -> int:
    """Return a whole number that may be written as 1e6 or 320,001,536."""
    written = str(text).replace(",", "").replace("_", "")
    try:
        return int(written)
    except ValueError:
        pass
    try:
        value = float(written)
    except ValueError:
        raise typer.BadParameter(f"a whole number is needed, such as 128000 or 1e6, but got {text!r}.") from None
    if not value.is_integer():
        raise typer.BadParameter(f"a whole number is needed, such as 128000 or 1e6, but got {text!r}.")
    return int(value)


@app.command()
@exit_on_error
def plan(
    vocab: Annotated[int, typer.Option(parser=_whole, metavar="NUMBER", help="Rows of the table.")],
    dim: Annotated[int, typer.Option(parser=_whole, metavar="NUMBER", help="Features of a row.")],
    ranks: Annotated[int, typer.Option(parser=_whole, metavar="NUMBER", help="Processes that train together.")],
    tokens: Annotated[
        int, typer.Option(parser=_whole, metavar="NUMBER", help="Tokens of each rank in one step.")
    ] = 8192,
    shards: Annotated[
        int, typer.Option(parser=_whole, metavar="NUMBER", help="Ranks among which vocabulary shards split the rows.")
    ] = 8,
    zipf: Annotated[float, typer.Option(help="Exponent of Zipf's law, by which tokens are drawn.")] = 1.0,
    float32: Annotated[bool, typer.Option("--float32", help="Compute in float32 rather than bfloat16.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compute what a token table costs on many ranks: memory and bytes sent, for each way to hold it.

    Example: whatwhere plan --vocab 1e6 --dim 8192 --ranks 1024

    For scripts: whatwhere plan --vocab 128256 --dim 4096 --ranks 64 --json
    """
    from whatwhere.parallel.plan import TableSettings, plan_table
    from whatwhere.report.plan import PlanRecord, headline, sections

    found = plan_table(TableSettings(vocab, dim, ranks, tokens, shards, zipf, 4 if float32 else 2))
    record = PlanRecord(headline(found), found)
    if as_json:
        print_json(record)
        return
    console = new_console()
    console.print(f"{record.headline}.", style="bold", soft_wrap=True)
    print_sections(sections(found), console)
