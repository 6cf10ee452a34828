"""plan and train: what a table costs on many processes, and one model trained on them, which torchrun starts."""

import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whatwhere.cli.app import (
    COMPARE,
    PREPARE,
    AsJson,
    app,
    complete_scheme,
    exit_on_error,
    print_json,
    program,
    to_path,
    whole_numbers,
)
from whatwhere.cli.compare import Tokenizer, settings_of
from whatwhere.cli.own import load_own, report_own_errors
from whatwhere.errors import SettingError, WhatWhereError
from whatwhere.escape import visible
from whatwhere.report.terminal import new_console, print_sections, print_table

if TYPE_CHECKING:
    from whatwhere.comparison.model import SchemeLike

_SPEAK_AFTER = 2.0  # seconds; torchrun looks ten times a second whether a process has ended


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


@app.command(rich_help_panel=PREPARE)
@exit_on_error
def plan(
    vocab: Annotated[int, typer.Option(parser=_whole, metavar="NUMBER", help="Rows of the table.")],
    dim: Annotated[int, typer.Option(parser=_whole, metavar="NUMBER", help="Features of a row.")],
    ranks: Annotated[int, typer.Option(parser=_whole, metavar="NUMBER", help="Processes that train together.")],
    tokens: Annotated[
        int, typer.Option(parser=_whole, metavar="NUMBER", help="Tokens of each rank in one step.")
    ] = 8192,
    shards: Annotated[
        int, typer.Option(parser=_whole, metavar="NUMBER", help="Most ranks that split the rows as vocabulary shards.")
    ] = 8,
    zipf: Annotated[float, typer.Option(help="Exponent of Zipf's law, by which tokens are drawn.")] = 1.0,
    float32: Annotated[bool, typer.Option("--float32", help="fully_shard gathers float32, not bfloat16.")] = False,
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


@contextmanager
def _first_speaks() -> Iterator[None]:
    """Report an error of another process than the first one later: torchrun ends it before, if all have that error."""
    from whatwhere.parallel.mesh import is_first

    try:
        yield
    except KeyboardInterrupt:
        if not is_first():
            raise typer.Exit(130) from None
        raise
    except WhatWhereError:
        if not is_first():
            time.sleep(_SPEAK_AFTER)
        raise


@app.command(rich_help_panel=COMPARE)
@exit_on_error
def train(
    scheme: Annotated[
        str | None,
        typer.Argument(
            autocompletion=complete_scheme,
            help='A name of `whatwhere schemes`, or a mixture "rotary+alibi" or "rotary@512*3/none".',
        ),
    ] = None,
    task: Annotated[str, typer.Option(help="Task: text, expressions or recall.")] = "text",
    file: Annotated[
        list[Path] | None, typer.Option(parser=to_path, help="File to train on, of any size; may be repeated.")
    ] = None,
    tokenizer: Tokenizer = None,
    lengths: Annotated[str | None, typer.Option(help="Lengths to test beyond the trained ones, as in 128,256.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of tokens, layers and batches.", min=0)] = 0,
    steps: Annotated[int | None, typer.Option(help="Optimizer steps.")] = None,
    dim: Annotated[int | None, typer.Option(help="Features of a token vector.")] = None,
    layers: Annotated[int | None, typer.Option(help="Number of Transformer blocks.")] = None,
    heads: Annotated[int | None, typer.Option(help="Attention heads of each block.")] = None,
    device: Annotated[str | None, typer.Option(help="Device: cpu, cuda or auto.")] = None,
    deterministic: Annotated[
        bool,
        typer.Option(
            "--deterministic",
            help="Compute on one thread by deterministic algorithms alone: equal bytes on every number of cores.",
        ),
    ] = False,
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="Any other setting, as in --set batch=512 or --set trained=1024.")
    ] = None,
    module: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE.py:NAME", help="A scheme or a task of your own; its file is run. May be repeated."),
    ] = None,
    data: Annotated[
        int | None, typer.Option(help="Replicas with sequences of their own. Default: what the others leave.", min=1)
    ] = None,
    shard: Annotated[
        int, typer.Option(help="Processes that share weights, with sequences of their own (FSDP).", min=1)
    ] = 1,
    tensor: Annotated[
        int, typer.Option(help="Processes that share heads, features and vocabulary of each layer.", min=1)
    ] = 1,
    context: Annotated[int, typer.Option(help="Processes that share the tokens of a sequence.", min=1)] = 1,
    order: Annotated[
        str, typer.Option(help="Tokens of each process of context: contiguous, zigzag or striped.")
    ] = "contiguous",
    keys: Annotated[
        str, typer.Option(help="Keys of other processes of context: gathered, or on a ring, two blocks at a time.")
    ] = "gathered",
    precision: Annotated[
        str, typer.Option(help="Of what is computed: float32, bfloat16, or auto (bfloat16 on CUDA).")
    ] = "auto",
    recompute: Annotated[
        bool, typer.Option("--recompute", help="Compute blocks again in the backward pass: less memory, more time.")
    ] = False,
    compiled: Annotated[bool, typer.Option("--compile", help="Compile each block by torch.compile.")] = False,
    every: Annotated[
        int | None, typer.Option(help="Steps between checkpoints. Default: a tenth of all.", min=1)
    ] = None,
    out: Annotated[Path, typer.Option(parser=to_path, help="The results folder.")] = Path("whatwhere-model"),
    as_json: AsJson = False,
) -> None:
    """Train one model, on this process or on many, with checkpoints; measure it as `compare` does.

    Processes of torchrun form a mesh of data x shard x tensor x context. If interrupted or killed, run the same command
    again to resume from the last checkpoint, also on another number of processes. The results folder is read by
    inspect, ask, studio and `compare --start`.

    Example: whatwhere train rotary --file notes.txt --steps 500 --out my-model

    In tokens: whatwhere train rotary --file a.txt --file b.txt --tokenizer path/to/model --set trained=256

    On 8 processes: torchrun --nproc-per-node 8 -m whatwhere train rotary --shard 4 --tensor 2 --layers 12 --dim 768

    Long sequences: torchrun --nproc-per-node 4 -m whatwhere train alibi --context 4 --keys ring --set trained=4096

    Restarted by itself: torchrun --nproc-per-node 4 --max-restarts 3 -m whatwhere train rotary --every 50
    """
    from whatwhere.comparison.read import read_results
    from whatwhere.comparison.train_one import train_one
    from whatwhere.report.comparison import summary
    from whatwhere.report.comparison_sentences import training_sentence

    own = load_own(module or [])
    if own.model is not None:
        raise SettingError(
            "train trains whatwhere's Transformer; how a model of your own is split is not known.\nCompare it: "
            "whatwhere compare --module FILE.py:NAME."
        )
    requested: list[SchemeLike] = [*([] if scheme is None else [scheme]), *own.schemes.items()]
    if len(requested) != 1:
        raise SettingError(
            f"train needs one scheme, but got {len(requested)}.\nName one, as in whatwhere train rotary; several are "
            "trained by whatwhere compare."
        )
    options: dict[str, Any] = settings_of(
        setting or [],
        {"steps": steps, "dim": dim, "layers": layers, "heads": heads, "device": device}
        | {"deterministic": deterministic or None},
    )
    with _first_speaks(), report_own_errors(module or []):
        trained = train_one(
            requested[0],
            task if own.task is None else own.task,
            None if lengths is None else whole_numbers("--lengths", lengths),
            seed,
            out,
            files=file or [],
            tokenizer=tokenizer,
            data=data,
            shard=shard,
            tensor=tensor,
            context=context,
            order=order,  # type: ignore[arg-type]  # which is checked there
            keys=keys,  # type: ignore[arg-type]
            precision=precision,  # type: ignore[arg-type]
            recompute=recompute,
            compiled=compiled,
            every=every,
            progress=True,
            **options,
        )
    if trained is None:  # the first rank speaks for all
        return
    if as_json:
        print_json(trained)
        return
    console = new_console()
    console.print(visible(training_sentence(trained)), style="bold", soft_wrap=True)
    print_table(summary(read_results(trained.folder)), console)
    console.print(f"To explore it: {program()} studio {visible(shlex.quote(trained.folder))}", soft_wrap=True)
