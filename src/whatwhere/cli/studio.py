"""studio: the local page."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from whatwhere.cli.app import AsJson, app, exit_on_error, say
from whatwhere.errors import MissingExtra, SettingError
from whatwhere.escape import visible
from whatwhere.report.terminal import progress


@app.command()
@exit_on_error
def studio(
    path: Annotated[
        Path | None, typer.Argument(help="A model, a file of vectors, or a results folder; without it, a fresh table.")
    ] = None,
    other: Annotated[Path | None, typer.Argument(help="A second model or file, to be compared with the first.")] = None,
    port: Annotated[
        int | None, typer.Option(help="The default is one of the system's choosing.", min=1024, max=65535)
    ] = None,
    corpus: Annotated[
        Path | None, typer.Option(help="A text in UTF-8, whose tokens are counted to color the map by.")
    ] = None,
    freeze: Annotated[
        Path | None, typer.Option(help="Write the page as one HTML file that needs no program, and end.")
    ] = None,
    layout: Annotated[
        str | None, typer.Option("--map", help="Have the map of a frozen page drawn by tsne or umap, besides pca.")
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

    Two beside each other: whatwhere studio path/to/model path/to/model.gguf

    As one file: whatwhere studio path/to/model --freeze model.html
    """
    if freeze is not None:
        if other is not None:
            raise SettingError("--freeze writes the page of one model; two are compared on the live page alone.")
        _freeze(path, freeze, layout, allow_pickle=allow_pickle, corpus=corpus, as_json=as_json)
        return
    if layout is not None:
        raise SettingError("--map is for --freeze; on the live page, choose the map there.")
    if missing := [name for name in ("starlette", "uvicorn") if find_spec(name) is None]:
        raise MissingExtra(f"the studio needs {missing[0]}, which is not installed: pip install 'whatwhere[studio]'.")
    from whatwhere.studio.server import serve
    from whatwhere.studio.session import Source

    source = Source.open(path, other, allow_pickle=allow_pickle, corpus=corpus)

    def tell(address: str, number: int) -> None:
        if as_json:
            print(json.dumps({"url": address, "port": number, "source": source.name}), flush=True)
        else:
            print(address, flush=True)
            say(f"{visible(source.name)} is open at the address above. Ctrl-C ends it.")

    serve(source, port, not no_browser, tell)


def _freeze(
    path: Path | None, target: Path, layout: str | None, *, allow_pickle: bool, corpus: Path | None, as_json: bool
) -> None:
    """Write the page as one file."""
    from whatwhere.studio.api.token_map import draw
    from whatwhere.studio.export import write_page
    from whatwhere.studio.session import Source

    with progress() as tell:
        source = Source.open(path, allow_pickle=allow_pickle, corpus=corpus)
        if layout not in (None, "pca"):
            draw(source, {"method": layout, "table": "input"}, lambda share, said: tell(f"{layout}: {said}"))
        write_page(source, target, tell=tell)
    if as_json:
        print(json.dumps({"file": str(target), "bytes": target.stat().st_size, "source": source.name}))
    else:
        print(target)
        say(f"{visible(source.name)} is frozen in this file of {target.stat().st_size / 1e6:.1f} MB.")
