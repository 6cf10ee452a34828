"""The commands resize, trim, repair and convert, which write changed checkpoints."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from whatwhere.cli.app import CHANGE, AsJson, Pickles, app, nothing_resumed, print_json, to_path
from whatwhere.errors import SettingError
from whatwhere.report.terminal import new_console, print_parts, progress

if TYPE_CHECKING:
    from whatwhere.models.checkpoint.checkpoint import Layout
    from whatwhere.models.surgery import Report
    from whatwhere.models.surgery.convert import Format
    from whatwhere.models.surgery.repair import Method as Repair
    from whatwhere.models.surgery.resize import Rows
    from whatwhere.models.surgery.retokenize import Method
    from whatwhere.where.input.learned import Align, Rule

Model = Annotated[Path, typer.Argument(parser=to_path, help="Folder of a model, or one file of safetensors.")]
Source = Annotated[
    Path,
    typer.Argument(parser=to_path, help="Folder of a model, or one file of safetensors; with --format any format."),
]
Out = Annotated[Path, typer.Argument(parser=to_path, help="Output; it must not exist yet.")]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing output, but never the input.")]


@app.command(rich_help_panel=CHANGE)
def resize(
    path: Model,
    out: Out,
    vocab_size: Annotated[int | None, typer.Option(help="New number of rows of the token table.", min=1)] = None,
    add_token: Annotated[list[str] | None, typer.Option(help="Text that becomes a token; may be repeated.")] = None,
    multiple_of: Annotated[
        int | None, typer.Option(help="Round the number of rows up to a multiple, such as 64.", min=1)
    ] = None,
    positions: Annotated[
        int | None, typer.Option(help="Interpolate the learned positions to this number.", min=1)
    ] = None,
    rows: Annotated[
        str | None,
        typer.Option(
            help="Initial values of new rows: mean, subtokens, noise or covariance. Default: noise for added tokens, "
            "mean for padding."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed for noise and covariance.", min=0)] = 0,
    rule: Annotated[str, typer.Option(help="Interpolation of positions: linear or cubic.")] = "linear",
    align: Annotated[str, typer.Option(help="Alignment of old and new positions: ends or cells.")] = "ends",
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write a checkpoint with more tokens, padded rows or more learned positions.

    Rows of added tokens are sampled: noise has the standard deviation of each feature, covariance the covariance of all
    features. Or they are the mean of the old rows, which makes them equal, or of the sub-tokens of their text.
    Configuration and tokenizer.json are changed with the table; other tensors are copied byte for byte.

    Nothing is resumed: the output appears whole or not at all, and an interrupted command starts over.

    Example: whatwhere resize path/to/model path/to/new --add-token electroencephalogram --rows subtokens
    """
    from whatwhere.models.surgery import resize_checkpoint

    with nothing_resumed(), progress():
        report = resize_checkpoint(
            path,
            out,
            vocab_size=vocab_size,
            add_tokens=add_token or (),
            multiple_of=multiple_of,
            positions=positions,
            rows=cast("Rows | None", rows),
            seed=seed,
            rule=cast("Rule", rule),
            align=cast("Align", align),
            force=force,
        )
    _print(report, as_json)


@app.command(rich_help_panel=CHANGE)
def trim(
    path: Model,
    out: Out,
    corpus: Annotated[
        list[Path] | None, typer.Option(parser=to_path, help="Keep the tokens of this text file; may be repeated.")
    ] = None,
    keep_ids: Annotated[
        Path | None, typer.Option(parser=to_path, help="Keep the ids in this file: one on each line, or a JSON list.")
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write a checkpoint with only the tokens that occur in a text or a list of ids.

    Special and added tokens are kept too, as are the parts from which byte-pair merges build kept tokens. Tokens are
    renumbered in tokenizer.json and the configuration; id_map.json maps new ids to old ones.

    Nothing is resumed: the output appears whole or not at all, and an interrupted command starts over.

    Example: whatwhere trim path/to/model path/to/new --corpus corpus.txt
    """
    from whatwhere.models.surgery import read_ids, trim_checkpoint

    with nothing_resumed(), progress():
        report = trim_checkpoint(
            path, out, corpus=corpus or (), keep_ids=None if keep_ids is None else read_ids(keep_ids), force=force
        )
    _print(report, as_json)


@app.command(rich_help_panel=CHANGE)
def repair(
    path: Model,
    out: Out,
    rows: Annotated[
        str,
        typer.Option(
            help="Direction of new rows: covariance (the untied output row, or a sample by the other rows) or "
            "subtokens (mean of the pieces of the text)."
        ),
    ] = "covariance",
    ids: Annotated[
        Path | None,
        typer.Option(parser=to_path, help="Repair the rows in this file instead: one id on each line, or a JSON list."),
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write a checkpoint in which broken rows of the token tables have usable values, at the median norm of the others.

    Broken are rows that are zero, not finite, under-trained, or far from the others by norm or nearness to the mean.
    Each table is judged by itself, as by whatwhere inspect --sections diagnostics; the row of the padding token may be
    zero, and special tokens may be far from the others. All other rows and tensors are copied byte for byte.

    Nothing is resumed: the output appears whole or not at all, and an interrupted command starts over.

    Example: whatwhere repair path/to/model path/to/new --rows subtokens
    """
    from whatwhere.models.surgery import read_ids, repair_checkpoint

    with nothing_resumed(), progress():
        report = repair_checkpoint(
            path, out, rows=cast("Repair", rows), ids=None if ids is None else read_ids(ids), force=force
        )
    _print(report, as_json)


@app.command(rich_help_panel=CHANGE)
def convert(
    path: Source,
    out: Out,
    layout: Annotated[str | None, typer.Option(help="Layout of rotary pairs: interleaved or half.")] = None,
    dtype: Annotated[
        str | None,
        typer.Option(help="Type: float32 (fp32), bfloat16 (bf16), float16 (fp16), float8_e4m3fn, float8_e5m2."),
    ] = None,
    tokenizer: Annotated[
        Path | None,
        typer.Option(parser=to_path, help="Move the token table to this tokenizer.json, or that of a folder."),
    ] = None,
    method: Annotated[
        str, typer.Option(help="New rows with --tokenizer: subtokens or omp (matching pursuit).")
    ] = "subtokens",
    format: Annotated[str | None, typer.Option(help="Output format: safetensors or projector.")] = None,
    allow_pickle: Pickles = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write a checkpoint in another rotary layout, type or format, or for another tokenizer, and measure the error.

    Pass one of --layout, --dtype, --tokenizer and --format; --dtype can be combined with --format safetensors.

    Nothing is resumed: the output appears whole or not at all, and an interrupted command starts over.

    Example: whatwhere convert path/to/model path/to/new --dtype bfloat16
    """
    from whatwhere.models import surgery

    chosen = [name for name, value in (("layout", layout), ("tokenizer", tokenizer), ("format", format)) if value]
    if len(chosen) + (dtype is not None and "format" not in chosen) != 1:
        raise SettingError(
            "convert does one thing.\nPass --layout, --dtype, --tokenizer or --format; --dtype can be combined with "
            "--format safetensors."
        )
    with nothing_resumed(), progress():
        if layout is not None:
            report = surgery.convert_layout(path, out, cast("Layout", layout), force=force)
        elif tokenizer is not None:
            chosen_method = cast("Method", method)
            report = surgery.move_to_tokenizer(path, out, tokenizer, method=chosen_method, force=force)
        elif format is not None:
            kind = cast("Format", format)
            report = surgery.convert_format(path, out, kind, dtype=dtype, allow_pickle=allow_pickle, force=force)
        else:
            report = surgery.convert_dtype(path, out, dtype or "", force=force)
    _print(report, as_json)


def _print(report: "Report", as_json: bool) -> None:
    from whatwhere.report.surgery import sections

    if as_json:
        print_json(report)
    else:
        print_parts((part for section in sections(report) for part in section.parts), new_console())
