"""studio: the local page."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

from typer import Argument, Option

from whatwhere.cli.app import READ, AsJson, Pickles, app, print_json, print_message, to_path, to_paths
from whatwhere.cli.compare import Modules, load_own
from whatwhere.errors import MissingExtra, SettingError
from whatwhere.escape import visible
from whatwhere.report.terminal import progress

if TYPE_CHECKING:
    from whatwhere.analysis.token_map import Method


@dataclass(frozen=True)
class OpenedPage:
    """What `studio --json` prints: where the page is, and what it shows."""

    url: str
    port: int
    name: str


@dataclass(frozen=True)
class ExportedPage:
    """What `studio --export --json` prints: the file, and its size."""

    file: str
    bytes: int


@app.command(rich_help_panel=READ)
def studio(
    path: Annotated[
        Path | None,
        Argument(parser=to_path, help="A model, a file of vectors, or a results folder; without it, a random table."),
    ] = None,
    other: Annotated[
        Path | None, Argument(parser=to_path, help="A second model or file to compare with the first.")
    ] = None,
    port: Annotated[int | None, Option(help="Port. Default: a free one.", min=1024, max=65535)] = None,
    corpus: Annotated[Path | None, to_paths("UTF-8 text, to color the map by the frequency of tokens.")] = None,
    export: Annotated[Path | None, to_paths("Export the page as one HTML file, and exit.")] = None,
    map_method: Annotated[
        str | None, Option("--map", help="Add a map by tsne or umap to the exported page, which has one by pca.")
    ] = None,
    no_browser: Annotated[bool, Option("--no-browser", help="Print the address only.")] = False,
    module: Modules = None,
    allow_pickle: Pickles = False,
    as_json: AsJson = False,
) -> None:
    """Open a local page on a model's tokens and positions, or on the results of a comparison. Ctrl-C ends it.

    The page can be opened from this machine only. It reads only the files named here, writes nothing, and loads nothing
    from the network.

    Example: whatwhere studio path/to/model

    Two beside each other: whatwhere studio path/to/model path/to/model.gguf

    As one file: whatwhere studio path/to/model --export model.html
    """
    from whatwhere.models.checkpoint import Checkpoint
    from whatwhere.studio.session import Session, in_training

    builds = load_own(module or []).builds
    if export is not None:
        if other is not None:
            raise SettingError("--export writes the page of one model; two are compared on the live page alone.")
        opened = None if path is None else in_training(path) or Checkpoint.open(path, allow_pickle=allow_pickle)
        if opened is not None:
            opened.builds = builds
        from whatwhere.studio.export import export as write

        with progress() as show_step:
            method = cast("Method", map_method or "pca")
            write(opened, export, map_method=method, corpus=corpus, progress=show_step)
        size = export.stat().st_size
        if as_json:
            print_json(ExportedPage(str(export), size))
        else:
            print(export)
            shown = "a fresh table, no model loaded" if opened is None else visible(str(opened.path))
            print_message(f"Wrote {visible(str(export))}, {size / 1e6:.1f} MB: {shown}.")
        return
    if map_method is not None:
        raise SettingError("--map is for --export; on the live page, choose the map there.")
    if missing := [name for name in ("starlette", "uvicorn") if find_spec(name) is None]:
        raise MissingExtra(f"the studio needs {missing[0]}, which is not installed: pip install 'whatwhere[studio]'.")
    from whatwhere.studio.server import serve

    with progress():
        session = Session.open(path, other, allow_pickle=allow_pickle, corpus=corpus)
    session.checkpoint.builds = builds

    def on_start(address: str, number: int) -> None:
        if as_json:
            print_json(OpenedPage(address, number, session.name))
        else:
            print(address, flush=True)
            print_message(f"{visible(session.name)} is open at the address above. Ctrl-C ends it.")

    serve(session, port, not no_browser, on_start)
