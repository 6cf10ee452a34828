"""resize, trim and convert: surgery on checkpoints."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from whatwhere.cli.app import AsJson, app, say, told
from whatwhere.errors import SettingError
from whatwhere.terminal import new_console, new_table, progress, visible

if TYPE_CHECKING:
    from whatwhere.interop.checkpoint.checkpoint import Layout
    from whatwhere.interop.surgery import Report
    from whatwhere.interop.surgery.formats import Format
    from whatwhere.interop.surgery.moving import Method
    from whatwhere.interop.surgery.resizing import Rows
    from whatwhere.where.interpolation import Align, Rule

Model = Annotated[Path, typer.Argument(help="A folder of a model, or one file of safetensors.")]
Source = Annotated[Path, typer.Argument(help="A model's file or folder; --format reads any format.")]
Out = Annotated[Path, typer.Argument(help="What is written; it must not be there yet.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what is there; never the input.")]
_SHOWN = 12


@app.command()
@told
def resize(
    path: Model,
    out: Out,
    vocab_size: Annotated[int | None, typer.Option(help="Rows that the token table shall have.", min=1)] = None,
    add_token: Annotated[list[str] | None, typer.Option(help="A text that becomes a token; may be repeated.")] = None,
    multiple_of: Annotated[int | None, typer.Option(help="Round the rows up, as to 64.", min=1)] = None,
    positions: Annotated[int | None, typer.Option(help="Interpolate learned positions to so many.", min=1)] = None,
    rows: Annotated[str, typer.Option(help="New rows: mean, subtokens, noise or covariance.")] = "mean",
    seed: Annotated[int, typer.Option(help="Of the noise.", min=0)] = 0,
    rule: Annotated[str, typer.Option(help="Of the interpolation: linear or cubic.")] = "linear",
    align: Annotated[str, typer.Option(help="Of the interpolation: ends or cells.")] = "ends",
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write a checkpoint with more tokens, padded rows or another length; all else byte for byte.

    New rows are the mean of the old ones, the mean of the sub-tokens of their text, or drawn: noise has the standard
    deviation of each feature, covariance that of all. Configuration and tokenizer.json are changed with the table.

    Example: whatwhere resize path/to/model path/to/new --add-token electroencephalogram --rows subtokens
    """
    from whatwhere.interop.surgery import resize_checkpoint

    with _writing() as count:
        report = resize_checkpoint(
            path,
            out,
            vocab_size=vocab_size,
            add_tokens=add_token or (),
            multiple_of=multiple_of,
            positions=positions,
            rows=cast("Rows", rows),
            seed=seed,
            rule=cast("Rule", rule),
            align=cast("Align", align),
            force=force,
            progress=count,
        )
    _print(report, as_json)


@app.command()
@told
def trim(
    path: Model,
    out: Out,
    corpus: Annotated[list[Path] | None, typer.Option(help="Keep the tokens of this text; may be repeated.")] = None,
    keep_ids: Annotated[Path | None, typer.Option(help="Keep the ids in this file, one a line or as JSON.")] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write a checkpoint without the tokens that a text, or a list, does not have.

    Special and added tokens stay, as does what byte-pair merges build the kept ones of. id_map.json says which old id
    each new one was; tokenizer.json and the configuration are numbered anew.

    Example: whatwhere trim path/to/model path/to/new --corpus corpus.txt
    """
    from whatwhere.interop.surgery import read_ids, trim_checkpoint

    with _writing() as count:
        report = trim_checkpoint(
            path,
            out,
            corpus=corpus or (),
            keep_ids=None if keep_ids is None else read_ids(keep_ids),
            force=force,
            progress=count,
        )
    _print(report, as_json)


@app.command()
@told
def convert(
    path: Source,
    out: Out,
    layout: Annotated[str | None, typer.Option(help="Of rotary pairs: interleaved or half-split.")] = None,
    dtype: Annotated[str | None, typer.Option(help="float32, bfloat16, float16, float8_e4m3fn or float8_e5m2.")] = None,
    tokenizer: Annotated[
        Path | None, typer.Option(help="Move the table to this tokenizer.json, or that of a folder.")
    ] = None,
    method: Annotated[str, typer.Option(help="Of --tokenizer, for new tokens: subtokens or omp.")] = "subtokens",
    format: Annotated[str | None, typer.Option(help="safetensors, npy, word2vec or projector.")] = None,
    allow_pickle: Annotated[
        bool, typer.Option("--allow-pickle", help="Read pickles too: only where you trust the author.")
    ] = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write a checkpoint in another rotary layout, type of number, tokenizer or format, and measure what it cost.

    One of --layout, --dtype, --tokenizer and --format is given; --dtype may also go with --format safetensors.

    Example: whatwhere convert path/to/model path/to/new --dtype bfloat16
    """
    from whatwhere.interop import surgery

    given = [name for name, value in (("layout", layout), ("tokenizer", tokenizer), ("format", format)) if value]
    if len(given) + (dtype is not None and "format" not in given) != 1:
        raise SettingError(
            "convert does one thing: give --layout, --dtype, --tokenizer or --format, and --dtype with --format alone."
        )
    with _writing() as count:
        others: dict[str, Any] = {"force": force, "progress": count}
        if layout is not None:
            report = surgery.convert_layout(path, out, cast("Layout", layout), **others)
        elif tokenizer is not None:
            report = surgery.move_to_tokenizer(path, out, tokenizer, method=cast("Method", method), **others)
        elif format is not None:
            kind = cast("Format", format)
            report = surgery.convert_format(path, out, kind, dtype=dtype, allow_pickle=allow_pickle, **others)
        else:
            report = surgery.convert_dtype(path, out, dtype or "", **others)
    _print(report, as_json)


@contextmanager
def _writing() -> Iterator[Callable[[int], None]]:
    """Tell on a terminal how much has been written; what was begun leaves nothing behind."""
    done = 0
    try:
        with progress() as tell:

            def count(size: int) -> None:
                nonlocal done
                done += size
                tell(f"writing: {done / 1e6:,.0f} MB")

            yield count
    except KeyboardInterrupt:
        say("interrupted. Nothing was written under that name.")
        raise typer.Exit(130) from None


def _print(report: "Report", as_json: bool) -> None:
    if as_json:
        print(json.dumps(report.as_dict()))
        return
    console = new_console()
    table = new_table("tensor", "before", "after", "what")
    for one in report.changed[:_SHOWN]:
        table.add_row(visible(one.name), one.before, one.after, one.what)
    if report.changed:
        console.print(table)
    if len(report.changed) > _SHOWN:
        console.print(f" and {len(report.changed) - _SHOWN:,} more, which --json lists")
    if report.kept:
        others = "1 other tensor is" if report.kept == 1 else f"{report.kept:,} other tensors are"
        console.print(f"\n{others} the same byte for byte.")
    for name, value in report.measured.items():
        console.print(f"{visible(name)}: {_said(value)}", soft_wrap=True)
    for note in report.notes:
        console.print(f"Note: {visible(note)}.", soft_wrap=True)
    if report.left_out:
        console.print(f"Not copied: {visible(', '.join(report.left_out))}.", soft_wrap=True)
    console.print(f"Written: {visible(report.out)}, {report.bytes:,} bytes of weights.", soft_wrap=True)


def _said(value: Any) -> str:
    """Say a number, or several with their names."""
    if isinstance(value, dict):
        return ", ".join(
            f"{name} ({_said(inner)})" if isinstance(inner, dict) else f"{name} {_said(inner)}"
            for name, inner in value.items()
        )
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return ", ".join(map(_said, value)) or "none"
    return f"{value:,}" if isinstance(value, int) else visible(value)
