"""map: the rows of a token table on a plane."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from whatwhere.cli.app import AsJson, app, told
from whatwhere.cli.asking import Model, Pickles, Which
from whatwhere.errors import SettingError
from whatwhere.terminal import new_console, progress, visible

if TYPE_CHECKING:
    from whatwhere.analysis.maps import Map, Method
    from whatwhere.interop.checkpoint import Checkpoint
    from whatwhere.interop.checkpoint.asked import Table

MOST = 50_000
"""Rows for t-SNE and UMAP where nothing is said: more take many minutes."""
_FORMS = (".svg", ".tsv", ".json")


@app.command(name="map")
@told
def draw(
    path: Model,
    method: Annotated[str, typer.Option(help="pca, tsne (extra map) or umap (extra umap).")] = "pca",
    out: Annotated[Path, typer.Option(help="A picture, .svg, or the places, .tsv or .json.")] = Path("map.svg"),
    tsv: Annotated[
        Path | None, typer.Option(help="A folder to write the table to for the Embedding Projector.")
    ] = None,
    rows: Annotated[
        int | None, typer.Option(help=f"Draw so many tokens at random; tsne and umap take {MOST:,}.", min=1)
    ] = None,
    k: Annotated[int, typer.Option("-k", help="Neighbors that are compared.", min=1)] = 10,
    seed: Annotated[int, typer.Option(help="Of all that is drawn at random.", min=0)] = 0,
    table: Which = "input",
    allow_pickle: Pickles = False,
    as_json: AsJson = False,
) -> None:
    """Lay the tokens out on a plane, and say how many of their true neighbors the plane keeps.

    Example: whatwhere map path/to/model --out map.svg
    """
    from whatwhere.analysis.difference import drawn
    from whatwhere.analysis.maps import make_map
    from whatwhere.interop.checkpoint import Checkpoint, write_projector
    from whatwhere.interop.checkpoint.asked import read_table

    with progress() as tell:
        checkpoint = Checkpoint.open(path, allow_pickle=allow_pickle)
        _check_targets(out, tsv, checkpoint)
        tell("reading")
        found = read_table(checkpoint, table)
        used = drawn(len(found.weight), rows or (len(found.weight) if method == "pca" else MOST), seed)
        tell(f"drawing the map by {method}, of {len(used):,} tokens")
        made = make_map(found.weight[used], cast("Method", method), k, seed=seed)
        names = [found.word(row) for row in used.tolist()]
        facts = _facts(path, found, made, seed)
        _write(out, facts, names, found.ids[used].tolist(), made, found)
        if tsv is not None:
            tell("writing the table")
            write_projector(tsv, found.weight[used], names)
    facts["files"] = [str(file) for file in (out, tsv) if file is not None]
    if as_json:
        print(json.dumps(facts))
        return
    console = new_console()
    for line in told_of(facts):
        console.print(line, soft_wrap=True)
    for file in facts["files"]:
        console.print(f"Written: {visible(Path(file).resolve())}", soft_wrap=True)


def told_of(facts: dict[str, Any]) -> list[str]:
    """Say in words what a map shows, and how far it can be trusted."""
    many = f"{facts['shown']:,}" + (f" of {facts['rows']:,}" if facts["shown"] < facts["rows"] else "")
    lines = [
        f"{many} tokens by {facts['method']}; seed {facts['seed']}",
        f"{100 * facts['kept']:.1f} % of the {facts['k']} nearest tokens of the full space are near here too, of "
        f"{facts['asked']:,} asked; chance would keep {100 * facts['chance']:.2g} %",
    ]
    if facts["share"] is not None:
        one, other = (f"{100 * share:.1f} %" for share in facts["share"])
        lines.append(f"across {one} of the variance, up {other}")
    if facts["left_out"]:
        lines.append(f"{len(facts['left_out'])} rows with NaN or infinity are left out")
    return lines


def _facts(path: Path, found: "Table", made: "Map", seed: int) -> dict[str, Any]:
    from whatwhere.interop.checkpoint.asked import word_of

    measured = {name: getattr(made, name) for name in ("method", "kept", "k", "asked", "chance", "share")}
    left_out = [{"token": word_of(found.words, n), "id": n} for n in found.broken.tolist()]
    shape = {"table": found.name, "rows": found.rows, "dim": found.weight.shape[1], "left_out": left_out}
    return {"path": str(path)} | shape | measured | {"shown": len(made.places), "seed": seed}


def _check_targets(out: Path, tsv: Path | None, checkpoint: "Checkpoint") -> None:
    """Refuse to write what cannot be written, or over what is read."""
    from whatwhere.interop.checkpoint.projector import VECTORS

    if out.suffix.lower() not in _FORMS:
        raise SettingError(f"--out got {str(out)!r}, but writes {', '.join(_FORMS)}: map.svg is a picture.")
    if out.is_dir():
        raise SettingError(f"--out got {str(out)!r}, which is a folder.\nName a file.")
    sources = {entry.file for entry in checkpoint.tensors.values()}
    for target in (out, *(() if tsv is None else (tsv / VECTORS,))):
        if target.exists() and any(target.samefile(source) for source in sources):
            raise SettingError(f"{target} is the model itself, which is not written over.\nName another.")


def _write(out: Path, facts: dict[str, Any], names: list[str], ids: list[int], made: "Map", found: "Table") -> None:
    from whatwhere.analysis.kinds import kinds, marking

    words = list(found.words)
    kind = kinds([words[n] if n < len(words) else "" for n in ids], marking(words)) if words else ["token"] * len(ids)
    spots = zip(ids, names, kind, made.places.tolist(), strict=True)
    if out.suffix.lower() == ".svg":
        from whatwhere.page.scatter import scatter

        text: str = scatter(made.places, names, kind, f"{Path(facts['path']).name}: {facts['table']}", told_of(facts))
    elif out.suffix.lower() == ".tsv":
        lines = (f"{n}\t{visible(name)}\t{group}\t{x:.6g}\t{y:.6g}\n" for n, name, group, (x, y) in spots)
        text = "id\ttoken\tkind\tx\ty\n" + "".join(lines)
    else:
        points = [{"id": n, "token": name, "kind": group, "x": x, "y": y} for n, name, group, (x, y) in spots]
        text = json.dumps(facts | {"points": points}) + "\n"
    try:
        out.write_bytes(text.encode("utf-8", "replace"))
    except OSError as problem:
        raise SettingError(f"{out} cannot be written: {problem.strerror}.\nChoose another file.") from None
