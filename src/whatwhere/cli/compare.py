"""demo and compare: train the same model with several positional encodings."""

import importlib.util
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from inspect import isfunction, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from whatwhere.cli.app import (
    COMPARE,
    OWN_FILES,
    Printed,
    command,
    complete_scheme,
    print_message,
    program,
    to_path,
    to_paths,
    whole_numbers,
)
from whatwhere.errors import MissingExtra, SettingError
from whatwhere.report.section import Part, Section
from whatwhere.report.text import count

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from whatwhere.comparison import Comparison, Task
    from whatwhere.comparison.experiment import Estimate
    from whatwhere.comparison.own_model import BuildModel
    from whatwhere.where.catalogue import Build

Workers = Annotated[int | None, Option(help="Worker processes. Default: one for each core.", min=1)]
Modules = Annotated[
    list[str] | None,
    Option(
        "--module",
        metavar="FILE.py:NAME",
        help="A scheme (a function that builds it), a task or a model of your own, also as package.module:NAME; its "
        "file is run. May be repeated.",
    ),
]


@command(COMPARE, shows_steps=False)
def demo(
    out: Annotated[Path, to_paths("The results folder.")] = Path("whatwhere-demo"), workers: Workers = None
) -> Printed:
    """Train a small Transformer with five positional encodings; test them beyond the trained length.

    Takes 2 to 3 minutes on two cores. If interrupted, run the same command again to resume.

    Example: whatwhere demo --out my-demo
    """
    from whatwhere.comparison import demo as run_demo

    return _shown(run_demo(out, workers=workers, progress=True), {})


@command(COMPARE, shows_steps=False)
def compare(
    schemes: Annotated[
        list[str] | None,
        Argument(
            autocompletion=complete_scheme,
            help='Names of `whatwhere schemes`, mixtures "rotary+alibi" or by layer "rotary@512*3/none" (a window of '
            '512), with settings of their own "rotary@randomized,dim=16". Default: all.',
        ),
    ] = None,
    task: Annotated[str, Option(help="Task: expressions, recall or text.")] = "expressions",
    file: Annotated[list[Path] | None, to_paths("File to train on, with --task text; may be repeated.")] = None,
    tokenizer: Annotated[
        Path | None,
        Option(
            parser=to_path,
            metavar="PATH",
            help="tokenizer.json, or a model's folder with one: the text is read in its tokens. Default: in bytes.",
        ),
    ] = None,
    lengths: Annotated[str | None, Option(help="Lengths to test beyond the trained ones, as in 8,16,32.")] = None,
    seeds: Annotated[str, Option(help='Number of seeds, or a list: 5, or "0,7,8"; "7," is a list of one.')] = "3",
    recipe: Annotated[
        str, Option(help="Training recipe: quick, or author (50 epochs, as many as the first tutorial states).")
    ] = "quick",
    steps: Annotated[int | None, Option(help="Optimizer steps of each run.")] = None,
    dim: Annotated[int | None, Option(help="Features of a token vector.")] = None,
    layers: Annotated[int | None, Option(help="Number of Transformer blocks.")] = None,
    heads: Annotated[int | None, Option(help="Attention heads of each block.")] = None,
    device: Annotated[
        str | None, Option(help="Device: cpu, cuda or auto. On CUDA the training runs in bfloat16.")
    ] = None,
    deterministic: Annotated[
        bool,
        Option(
            "--deterministic",
            help="Use deterministic algorithms alone, slower on CUDA. Runs on the CPU have equal bytes without it.",
        ),
    ] = False,
    vary: Annotated[
        list[str] | None,
        Option(help="Values of a setting (see below), crossed with the schemes: dim=16,64,256; may be repeated."),
    ] = None,
    start: Annotated[
        str | None,
        Option(
            metavar="RESULTS[:SCHEME]",
            help="Results whose trained models the runs start from; --steps 0 trains them no further.",
        ),
    ] = None,
    against: Annotated[
        str | None,
        Option(help="Scheme of these that all are compared with, instead of all pairs: it needs fewer seeds."),
    ] = None,
    setting: Annotated[
        list[str] | None, Option("--set", help="Any other setting (see below), as in --set direction=encoder.")
    ] = None,
    module: Modules = None,
    repeat: Annotated[
        Path | None,
        Option(
            parser=to_path, metavar="RESULTS", help="Results to make again in --out: their schemes, seeds and settings."
        ),
    ] = None,
    yes: Annotated[bool, Option("--yes", help="Begin without a question where no scheme is named.")] = False,
    log: Annotated[
        str | None, Option(help="Where losses and scores go too: tensorboard:FOLDER or wandb:PROJECT.")
    ] = None,
    out: Annotated[Path, to_paths("The results folder.")] = Path("whatwhere-results"),
    workers: Workers = None,
    executor: Annotated[
        str | None,
        Option(metavar="NAME:NUMBER", help="Where runs take place: processes:4 (as --workers 4), or threads:4."),
    ] = None,
) -> Printed | None:
    """Train the same Transformer with several positional encodings; test it in and beyond the trained length.

    Writes results.json and report.html. If interrupted, run the same command again to resume. Processes of the same
    command share its runs: start it in a second terminal, on another machine that shares the folder, or by torchrun.

    Example: whatwhere compare none rotary alibi --task text --file notes.txt --lengths 128,256 --seeds 8

    In tokens of a model: whatwhere compare none rotary --task text --file notes.txt --tokenizer path/to/model

    Settings that vary: whatwhere compare none rotary rotary@randomized --vary dim=16,64 --vary tied=true,false

    Settings, for --vary, for --set and in names behind @: steps, batch, learning_rate, weight_decay, schedule (cosine,
    constant), dim, layers, heads, feedforward, direction (decoder, encoder), init, table (learned, frozen, onehot, ids,
    rank2), tied, positions (plain, randomized, random_offset), max_length, test_positions (same, plain). For --set
    alone: betas, trained, test_sequences. Schemes are compared in the settings of their least held-out loss.

    Against one: whatwhere compare none rotary alibi xpos --against none --seeds 8

    A scheme of your own, alone and mixed: whatwhere compare none mine mine/none --module mine.py:mine

    A model of your own: whatwhere compare none rotary alibi --module mine.py:Decoder --layers 4 --dim 128

    Shared among processes: torchrun --nproc-per-node 4 -m whatwhere compare none rotary alibi --seeds 8

    The same again: whatwhere compare --repeat whatwhere-demo --out again

    A longer context: whatwhere compare rotary rotary-yarn@factor=4 --start whatwhere-demo:rotary --steps 0 --out longer
    """
    from whatwhere.comparison import compare as run_compare
    from whatwhere.comparison import estimate, open_log
    from whatwhere.comparison.model import with_builds
    from whatwhere.comparison.results import torchrun_rank
    from whatwhere.where.catalogue import catalogue, entry_names

    own = load_own(module or [])
    if repeat is not None:
        requested, subject, tested, numbers, options = _repeated(repeat, schemes, own, module or [])
    else:
        subject = task if own.task is None else own.task
        tested = None if lengths is None else whole_numbers("--lengths", lengths)
        listed = whole_numbers("--seeds", seeds)
        numbers = listed[0] if len(listed) == 1 and "," not in seeds else listed
        if number := next((name for name in schemes or () if name.isdigit()), None):
            raise SettingError(
                f"{number!r} is not a scheme. Numbers of an option are one word: --lengths 8,{number}, not 8 {number}."
            )
        used = set[str]().union(*map(entry_names, schemes or ()))
        names = [*(schemes or ([] if own.schemes else catalogue)), *(name for name in own.schemes if name not in used)]
        requested = with_builds(names, own.schemes)
        options = {"files": file or [], "recipe": recipe, "vary": _varied(vary or []), "tokenizer": tokenizer}
        named = {"steps": steps, "dim": dim, "layers": layers, "heads": heads, "device": device}
        options |= settings_of(setting or [], named | {"deterministic": deterministic or None})
        options["model"] = own.model
        if not schemes and not own.schemes:  # all of them take a quarter of an hour
            _confirm(estimate(requested, subject, tested, numbers, workers=workers, **options), yes)
        options |= {"start": start, "against": against}
    comparison = run_compare(
        requested,
        subject,
        tested,
        numbers,
        out,
        workers=workers,
        executor=None if executor is None else make_executor(executor),
        progress=not torchrun_rank(),
        on_run=None if log is None else open_log(log),
        **options,
    )
    return None if torchrun_rank() else _shown(comparison, own.builds)  # the first rank speaks for all


def _repeated(folder: Path, schemes: Sequence[str] | None, own: "Own", given: Sequence[str]) -> tuple[Any, ...]:
    """Return schemes, task, lengths, seeds and options of the comparison in a folder."""
    from whatwhere.comparison import read_results
    from whatwhere.comparison.model import with_builds
    from whatwhere.comparison.variants import scheme_of
    from whatwhere.where.catalogue import require_builds

    record = read_results(folder).record
    if schemes:
        raise SettingError("--repeat takes the schemes of its results: leave their names out.")
    if record.request is None:
        raise SettingError(f"{folder} was written by an earlier whatwhere. It was made by: {record.command}")
    if record.request.modules is None:
        raise SettingError(f"{folder} has a scheme, task or model of your own in no file: repeat it in Python.")
    passed, needed = (sorted(each.rpartition(":")[2] for each in specs) for specs in (given, record.request.modules))
    if passed != needed or (own.model is None) != (record.model is None):
        files = " --module ".join(("", *map(shlex.quote, record.request.modules)))
        how = f"with code of your own, which runs only where you name it:{files}\nName all of it, and nothing else."
        raise SettingError(f"{folder} was made {how if files else 'without code of your own: leave --module out.'}")
    options = {name: value for name, value in vars(record.settings).items() if name not in ("task", "lengths")}
    if own.task is not None:
        options.pop("trained")
    options |= {name: getattr(record.request, name) for name in ("files", "tokenizer", "start", "against", "vary")}
    copy = folder / "tokens" / f"{record.task.identity.removeprefix('sha256 ')}.bytes"
    if copy.is_file():  # of a text in bytes, whose files may be gone or have changed
        options["files"] = [str(copy)]
    options["model"] = own.model
    for run in record.runs:
        if run.own:
            require_builds(run.base, own.schemes, record.sources, folder)
    named = dict.fromkeys(scheme_of(run.base, run.varied, record.request.vary) for run in record.runs)
    requested = with_builds(named, own.schemes)
    subject = record.task.name.removesuffix(" in tokens") if own.task is None else own.task
    return requested, subject, record.settings.lengths, record.seeds, options


def _confirm(estimate: "Estimate", yes: bool) -> None:
    """Print how long it takes, and wait for consent."""
    minutes = max(1, round(estimate.seconds / 60))
    print_message(f"{estimate.runs} runs, about {count(minutes, 'minute')} with {estimate.workers} worker processes")
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise SettingError(
            "compare without a scheme runs all of them, and without a terminal it cannot ask whether to.\n"
            "Pass --yes, or name schemes: whatwhere compare none rotary alibi"
        )
    if not typer.confirm("Begin?", default=True, err=True):
        raise typer.Exit(0)


def _shown(comparison: "Comparison", builds: "Mapping[str, Build]") -> Printed:
    """Write the page, and return the scores and what follows from them."""
    from whatwhere.comparison.statistics import PairedDifferences, paired_differences
    from whatwhere.report import comparison_sentences as sentences
    from whatwhere.report.comparison import ComparedRecord, summary

    page = _write_page(comparison.folder, builds)
    differences = paired_differences(comparison, sentences.last_length(comparison))
    parts: list[Part] = [*sentences.first_sentences(comparison, differences), sentences.start_sentence(comparison)]
    parts.append(summary(comparison))
    if isinstance(differences, PairedDifferences) and differences.pairs and differences.enough_seeds:
        parts.append(sentences.differences_table(comparison, differences, rows=6))
    parts += [*sentences.choices_table(comparison), sentences.scope_sentence(comparison)]
    lines = [
        "No report was written: this whatwhere was built without Node.js and has no page. In a checkout: make page."
        if page is None
        else f"Report: {page.resolve()}",
        f"To explore it: {program()} studio {shlex.quote(str(comparison.folder))}",
    ]
    record = ComparedRecord(**vars(comparison.record), differences=differences)
    return Printed(record, [Section("scores", "Scores", [part for part in parts if part]), *lines])


def _write_page(folder: Path, builds: "Mapping[str, Build]") -> Path | None:
    """Write report.html; None where this installation has no page."""
    from whatwhere.studio.export import write_page
    from whatwhere.studio.session import Session

    file = folder / "report.html"
    try:
        session = Session.open(folder)
        session.checkpoint.builds = builds
        return write_page(session, file)
    except MissingExtra:
        file.unlink(missing_ok=True)  # an older page would show other results
        return None


def _varied(assignments: Sequence[str]) -> dict[str, list[str]]:
    varied: dict[str, list[str]] = {}
    for part in assignments:
        name, equals, values = (word.strip() for word in part.partition("="))
        if not equals or not values:
            raise SettingError(f"--vary got {part!r}, but needs a name and values, as in --vary dim=16,64,256.")
        if name in varied:
            raise SettingError(f"--vary got {name} twice: pass all its values at once.")
        varied[name] = [value.strip() for value in values.split(",")]
    return varied


def make_executor(text: str) -> "Executor":
    """Return the executor that `--executor` names."""
    from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
    from multiprocessing import get_context

    name, _, number = text.partition(":")
    if name not in ("processes", "threads") or not number.isdecimal() or int(number) == 0:
        raise SettingError(
            f"--executor got {text!r}, but needs processes:NUMBER or threads:NUMBER. Those of other libraries are "
            "passed in Python: compare(executor=...)."
        )
    threads = name == "threads"
    return ThreadPoolExecutor(int(number)) if threads else ProcessPoolExecutor(int(number), get_context("spawn"))


def settings_of(assignments: Sequence[str], options: Mapping[str, Any]) -> dict[str, Any]:
    """Combine the settings of --set with those that have options of their own."""
    from whatwhere.comparison import compare as run_compare
    from whatwhere.where.catalogue import scalar

    settings = {name: value for name, value in options.items() if value is not None}
    for part in assignments:
        name, equals, value = (word.strip() for word in part.partition("="))
        if not equals:
            raise SettingError(f"--set got {part!r}, but needs name=value, as in --set direction=encoder.")
        if name in signature(run_compare).parameters:
            raise SettingError(f"--set got {name}, which is not a setting; its option, if any: whatwhere compare -h.")
        if name in settings:
            raise SettingError(f"{name} was passed twice: {settings[name]!r} and {value!r}. Pass it once.")
        if name == "trained":
            settings[name] = whole_numbers("--set trained", value)
        else:
            values = [scalar(each.strip()) for each in value.split(",")]
            settings[name] = values if len(values) > 1 else values[0]
    return settings


# Schemes, tasks and models of the user's own, from files named by --module


@dataclass
class Own:
    """What the files of --module hold."""

    schemes: "dict[str, Build]" = field(default_factory=dict)
    task: "Task | None" = None
    model: "BuildModel | None" = None

    @property
    def builds(self) -> "dict[str, Any]":
        """The functions and classes by name, as `Checkpoint.builds` has them."""
        from whatwhere.comparison.own_model import model_name

        return self.schemes if self.model is None else self.schemes | {model_name(self.model): self.model}


def load_own(modules: Sequence[str]) -> Own:
    """Import the files of --module, and sort what they hold: schemes, a task, a model."""
    own = Own()
    for spec in modules:
        from whatwhere.comparison.own_model import is_model_builder  # here, since a file is inspected without PyTorch
        from whatwhere.comparison.tasks import is_task

        name, loaded = _loaded(spec)
        if (kind := "task" if is_task(loaded) else "model" if is_model_builder(loaded) else None) is not None:
            if getattr(own, kind) is not None:
                raise SettingError(f"--module got two {kind}s, but a comparison has one.")
            setattr(own, kind, loaded)
        elif (
            callable(loaded)
            and not isinstance(loaded, type)
            and (not isfunction(loaded) or signature(loaded).parameters)
        ):
            own.schemes[name] = loaded
        else:
            raise SettingError(
                f"--module {spec} is a {'class' if isinstance(loaded, type) else type(loaded).__name__}, but needs a "
                "function build(dim, num_heads, max_length) that returns a Where, a class or "
                f"function of (vocab_size, wheres, settings) that makes a model, or a Task, as by task = {name}()."
            )
    return own


def _loaded(spec: str) -> tuple[str, Any]:
    """Import a file by its own name, or a module by its dotted one, so that worker processes can import it too."""
    where, _, name = spec.rpartition(":")
    path, is_file = Path(where).resolve(), where.endswith(".py") and Path(where).stem.isidentifier()
    if not is_file and not all(map(str.isidentifier, where.split("."))):
        rule = "" if not where.endswith(".py") else " Python imports a file whose name has letters, digits and _ alone."
        raise SettingError(
            f"--module got {spec!r}, but needs a name in a file or a module: mine.py:build, my.own:build.{rule}"
        )
    folder, module = (path.parent, path.stem) if is_file else (Path.cwd(), where)
    sys.path.append(str(folder))  # behind the libraries, which a file of the user's must not replace
    found = None
    try:
        if (top := importlib.util.find_spec(module.partition(".")[0])) is not None:  # which runs nothing
            OWN_FILES.update(Path(each).resolve() for each in top.submodule_search_locations or [str(top.origin)])
            found = importlib.util.find_spec(module)
    except (ModuleNotFoundError, ValueError) as problem:
        if not f"{module}.".startswith(f"{getattr(problem, 'name', '__main__')}."):
            raise  # what its package imports or raises
    if found is None or found.origin is None or not Path(found.origin).is_relative_to(folder):
        sys.path.remove(str(folder))
    if found is not None and found.origin is None and not is_file:
        raise SettingError(f"--module got {spec!r}, but {module} is a folder without code: name a module in it.")
    origin = None if found is None or found.origin is None else Path(found.origin).resolve()
    if origin is None or (is_file and origin != path):
        if origin is None or not path.is_file():
            raise SettingError(f"--module got {spec!r}, but there is no {path if is_file else f'module {where}'}.")
        raise SettingError(f"{path.name} has the name of another module, {origin}: give it another name.")
    loaded = importlib.import_module(module)
    if not hasattr(loaded, name):
        raise SettingError(f"{origin} has no {name!r} at its top.")
    return name, getattr(loaded, name)
