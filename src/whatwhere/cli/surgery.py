"""The commands resize, extend, trim, repair and convert, which write changed checkpoints."""

from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from whatwhere.cli.app import CHANGE, Pickles, Printed, command, to_path, to_paths, with_parameters
from whatwhere.errors import SettingError

Model = Annotated[Path, Argument(parser=to_path, help="Folder of a model, or one file of safetensors.")]
Out = Annotated[Path, Argument(parser=to_path, help="Output; it must not exist yet, and appears whole or not at all.")]
Force = Annotated[bool, Option("--force", help="Replace an existing output, but never the input.")]


def _surgery() -> Any:
    """Return the functions that are called, which refuse choices that they do not know."""
    from whatwhere import surgery

    return surgery


def _writes(change: Callable[..., Any]) -> Callable[..., None]:
    """Make a command of a function that writes a checkpoint."""

    def run(**given: Any) -> Printed:
        from whatwhere.report.surgery import parts

        report = change(**given)
        return Printed(report, parts(report))

    return command(CHANGE)(with_parameters(run, change, [*signature(change).parameters.values()]))


@_writes
def resize(
    path: Model,
    out: Out,
    vocab_size: Annotated[int | None, Option(help="New number of rows of the token table.", min=1)] = None,
    add_token: Annotated[list[str] | None, Option(help="Text that becomes a token; may be repeated.")] = None,
    multiple_of: Annotated[
        int | None, Option(help="Round the number of rows up to a multiple, such as 64.", min=1)
    ] = None,
    positions: Annotated[int | None, Option(help="Interpolate the learned positions to this number.", min=1)] = None,
    rows: Annotated[
        str | None,
        Option(
            help="Initial values of new rows: mean, subtokens, noise or covariance. Default: noise for added tokens, "
            "mean for padding."
        ),
    ] = None,
    seed: Annotated[int, Option(help="Random seed for noise and covariance.", min=0)] = 0,
    rule: Annotated[str, Option(help="Interpolation of positions: linear or cubic.")] = "linear",
    align: Annotated[str, Option(help="Alignment of old and new positions: ends or cells.")] = "ends",
    force: Force = False,
) -> Any:
    """Write a checkpoint with more tokens, padded rows or more learned positions.

    Rows of added tokens are sampled: noise has the standard deviation of each feature, covariance the covariance of all
    features. Or they are the mean of the old rows, which makes them equal, or of the sub-tokens of their text.
    Configuration and tokenizer.json are changed with the table; other tensors are copied byte for byte.

    Example: whatwhere resize path/to/model path/to/new --add-token electroencephalogram --rows subtokens
    """
    values: dict[str, Any] = {"multiple_of": multiple_of, "positions": positions, "rows": rows, "rule": rule}
    values |= {"vocab_size": vocab_size, "add_tokens": add_token or (), "seed": seed, "align": align, "force": force}
    return _surgery().resize_checkpoint(path, out, **values)


@_writes
def extend(
    path: Model,
    out: Out,
    to: Annotated[int, Option(help="New length, in tokens.", min=2)],
    scaling: Annotated[str, Option(help="RoPE scaling: linear, dynamic, yarn or llama3.")] = "yarn",
    force: Force = False,
) -> Any:
    """Write a checkpoint whose configuration has a RoPE scaling for longer texts, and probe both configurations.

    The scaling is written in the forms of transformers 4 and 5. A configuration that would then be read otherwise in
    more than its length is refused, and so is another scaling than a model has. All tensors are copied byte for byte.
    If transformers is installed, a tiny random model of each configuration shows its frequencies before and after.

    Example: whatwhere extend path/to/model path/to/new --to 16384 --scaling yarn
    """
    return _surgery().extend_checkpoint(path, out, to=to, scaling=scaling, force=force)


@_writes
def trim(
    path: Model,
    out: Out,
    corpus: Annotated[list[Path] | None, to_paths("Keep the tokens of this text file; may be repeated.")] = None,
    keep_ids: Annotated[Path | None, to_paths("Keep the ids in this file: one on each line, or a JSON list.")] = None,
    scripts: Annotated[
        str | None, Option(help="Keep the tokens whose letters are all of these scripts, as in latin,cyrillic.")
    ] = None,
    force: Force = False,
) -> Any:
    """Write a checkpoint with only the tokens that occur in a text or a list of ids, or are of some scripts.

    Special and added tokens are kept too, as are the parts from which byte-pair merges build kept tokens. Tokens are
    renumbered in tokenizer.json and the configuration; id_map.json maps new ids to old ones.

    Example: whatwhere trim path/to/model path/to/new --corpus corpus.txt
    """
    ids = None if keep_ids is None else _surgery().read_ids(keep_ids)
    names = () if scripts is None else scripts.split(",")
    return _surgery().trim_checkpoint(path, out, corpus=corpus or (), keep_ids=ids, scripts=names, force=force)


@_writes
def repair(
    path: Model,
    out: Out,
    rows: Annotated[
        str,
        Option(
            help="Direction of new rows: covariance (the untied output row, or a sample by the other rows) or "
            "subtokens (mean of the pieces of the text)."
        ),
    ] = "covariance",
    ids: Annotated[
        Path | None, to_paths("Repair the rows in this file instead: one id on each line, or a JSON list.")
    ] = None,
    force: Force = False,
) -> Any:
    """Write a checkpoint in which broken rows of the token tables have usable values, at the median norm of the others.

    Broken are rows that are zero, not finite, under-trained, or far from the others by norm or nearness to the mean.
    Each table is judged by itself, as by whatwhere inspect --sections diagnostics; the row of the padding token may be
    zero, and special tokens may be far from the others. All other rows and tensors are copied byte for byte.

    Example: whatwhere repair path/to/model path/to/new --rows subtokens
    """
    chosen = None if ids is None else _surgery().read_ids(ids)
    return _surgery().repair_checkpoint(path, out, rows=rows, ids=chosen, force=force)


@_writes
def convert(
    path: Annotated[
        Path, Argument(parser=to_path, help="Folder of a model, or one file of safetensors; with --format any format.")
    ],
    out: Out,
    layout: Annotated[str | None, Option(help="Layout of rotary pairs: interleaved or half.")] = None,
    dtype: Annotated[
        str | None, Option(help="Type: float32 (fp32), bfloat16 (bf16), float16 (fp16), float8_e4m3fn, float8_e5m2.")
    ] = None,
    tokenizer: Annotated[
        Path | None, to_paths("Move the token table to this tokenizer.json, or that of a folder.")
    ] = None,
    method: Annotated[
        str, Option(help="New rows with --tokenizer: subtokens or omp (matching pursuit).")
    ] = "subtokens",
    format: Annotated[str | None, Option(help="Output format: safetensors or projector.")] = None,
    allow_pickle: Pickles = False,
    force: Force = False,
) -> Any:
    """Write a checkpoint in another rotary layout, type or format, or for another tokenizer, and measure the error.

    Pass one of --layout, --dtype, --tokenizer and --format; --dtype can be combined with --format safetensors.

    Example: whatwhere convert path/to/model path/to/new --dtype bfloat16
    """
    chosen = [name for name, value in (("layout", layout), ("tokenizer", tokenizer), ("format", format)) if value]
    if len(chosen) + (dtype is not None and "format" not in chosen) != 1:
        raise SettingError(
            "convert does one thing.\nPass --layout, --dtype, --tokenizer or --format; --dtype can be combined with "
            "--format safetensors."
        )
    if layout is not None:
        return _surgery().convert_layout(path, out, layout, force=force)
    if tokenizer is not None:
        return _surgery().move_to_tokenizer(path, out, tokenizer, method=method, force=force)
    if format is not None:
        return _surgery().convert_format(path, out, format, dtype=dtype, allow_pickle=allow_pickle, force=force)
    return _surgery().convert_dtype(path, out, dtype or "", force=force)
