"""studio: the local page."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from whatwhere.cli.app import AsJson, app, say, told
from whatwhere.errors import MissingExtra
from whatwhere.terminal import visible


@app.command()
@told
def studio(
    path: Annotated[
        Path | None, typer.Argument(help="A model, a file of vectors, or a results folder; without it, a fresh table.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="The default is one of the system's choosing.", min=1024, max=65535)
    ] = None,
    corpus: Annotated[
        Path | None, typer.Option(help="A text in UTF-8, whose tokens are counted to color the map by.")
    ] = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address only.")] = False,
    allow_pickle: Annotated[
        bool, typer.Option("--allow-pickle", help="Read pickles of PyTorch too; only where you trust the author.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Open a local page on a model's tokens and positions, or on the results of a comparison. Ctrl-C ends it.

    The page answers this machine alone, reads nothing but what is named here, writes nothing, and loads nothing from
    the network.

    Example: whatwhere studio path/to/model
    """
    if missing := [name for name in ("starlette", "uvicorn") if find_spec(name) is None]:
        raise MissingExtra(f"the studio needs {missing[0]}, which is not installed: pip install 'whatwhere[studio]'.")
    from whatwhere.studio.server import serve
    from whatwhere.studio.sources import Source

    source = Source.open(path, allow_pickle=allow_pickle, corpus=corpus)

    def tell(address: str, number: int) -> None:
        if as_json:
            print(json.dumps({"url": address, "port": number, "source": source.name}), flush=True)
        else:
            print(address, flush=True)
            say(f"{visible(source.name)} is open at the address above. Ctrl-C ends it.")

    serve(source, port, not no_browser, tell)
