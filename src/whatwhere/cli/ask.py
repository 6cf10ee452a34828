"""ask: what the trained models of a comparison answer."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from whatwhere.cli.app import COMPARE, AsJson, app, print_json, to_path, whole_numbers
from whatwhere.cli.own import load_own
from whatwhere.errors import SettingError
from whatwhere.report.terminal import new_console, print_parts


@app.command(rich_help_panel=COMPARE)
def ask(
    results: Annotated[
        Path, typer.Argument(parser=to_path, help="Folder that whatwhere compare or whatwhere demo wrote.")
    ],
    text: Annotated[str, typer.Argument(help="A sequence of its task, such as First(6,2,1), or aKcR?c for recall.")],
    scheme: Annotated[
        list[str] | None, typer.Option(help="Scheme that answers; may be repeated. Default: every one.")
    ] = None,
    seed: Annotated[
        str | None, typer.Option(help="Seed of the runs, or all. Default: of each scheme the run of the median score.")
    ] = None,
    positions: Annotated[
        str | None, typer.Option(help="Position of each token, as in 0,1,2,3. Default: as in the tests of the runs.")
    ] = None,
    module: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE.py:NAME",
            help="A scheme or a model of your own that was compared; its file is run. May be repeated.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what the trained models of a comparison answer: each answer, its probability, and the next probable tokens.

    --json has the attention weights too: layers, heads, queries, keys.

    Example: whatwhere ask whatwhere-demo "First(6,2,1)"

    A model of your own: whatwhere ask whatwhere-results "Max(1,2)" --module mine.py:Decoder

    With other positions: whatwhere ask whatwhere-demo "Max(1,2)" --scheme alibi --positions 0,1,2,9,10,11
    """
    from whatwhere.comparison import ask as ask_models
    from whatwhere.report.answers import sections

    own = load_own(module or [])
    answers = ask_models(
        results,
        text,
        schemes=scheme,
        seed=_seed(seed),
        positions=None if positions is None else whole_numbers("--positions", positions),
        builds=own.schemes,
        model=own.model,
    )
    if as_json:
        print_json(answers)
        return
    print_parts(sections(answers), new_console())


def _seed(text: str | None) -> int | Literal["all"] | None:
    if text is None or text == "all":
        return None if text is None else "all"
    if not text.isdecimal():
        raise SettingError(f"--seed got {text!r}, but needs a whole number, or all.")
    return int(text)
