"""The results of a comparison as typed records: what results.json and the files of single runs hold."""

import os
import platform
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import numpy as np

from whatwhere import __version__
from whatwhere.comparison.settings import Settings


@dataclass(frozen=True)
class Machine:
    """The machine that the runs took place on."""

    processor: str
    cores: int
    system: str


def versions() -> dict[str, str]:
    """Return the versions of what numbers depend on."""
    return {
        "whatwhere": __version__,
        "torch": version("torch"),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def machine() -> Machine:
    """Describe this machine."""
    return Machine(_processor(), cores(), f"{platform.system()} {platform.machine()}")


def cores() -> int:
    """Count the cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


def torchrun_rank() -> int | None:
    """Return the rank of this process among those that torchrun has started, or None without torchrun."""
    rank = os.environ.get("RANK", "") if "TORCHELASTIC_RUN_ID" in os.environ else ""
    return int(rank) if rank.isdecimal() else None


def share_of_cores() -> int:
    """Count the cores for each of the processes that torchrun has started on this machine, at least one."""
    processes = os.environ.get("LOCAL_WORLD_SIZE", "") if torchrun_rank() is not None else ""
    return max(1, cores() // int(processes)) if processes.isdecimal() and int(processes) else cores()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


ALL = "all"
"""The group of all targets, in scores."""

Scores = Mapping[str, float | None]
"""Scores by group; None where a scheme has no row for a position, or no target belongs to the group."""


@dataclass(frozen=True)
class Spread:
    """The median over seeds, with the range."""

    median: float
    min: float
    max: float


@dataclass(frozen=True)
class ParameterCount:
    """Numbers that a model learns."""

    total: int  # of the whole model
    tokens: int | None  # of its token table; None of a model of the caller's own that has none, or several
    positions: int  # of its positional encoding


@dataclass(frozen=True)
class Shift:
    """What becomes of a model's answers when every position is shifted."""

    score: float | None  # of all targets; None where the scheme has no row for such positions
    largest_logit_change: float | None  # the largest absolute difference to the unshifted logits, or None


@dataclass(frozen=True)
class Statistics:
    """Mean, standard deviation and range of the numbers of a table."""

    mean: float
    std: float
    min: float
    max: float


@dataclass(frozen=True)
class TokenCosines:
    """Cosines between rows of the token table E of the expressions, or of what training wrote into it, E - E0.

    A number is missing where a row is zero.
    """

    max_min: float | None  # between the rows of Max and Min
    first_last: float | None  # between the rows of First and Last
    within_digits: float | None  # mean over all pairs of digits
    within_operators: float | None  # mean over all pairs of operators
    within_syntax: float | None  # mean over all pairs of brackets and the comma


@dataclass(frozen=True)
class TableSnapshot:
    """The token table of the expressions task at a share of the steps.

    Args:
        percent: of the steps that are done.
        table: of its numbers.
        with_positions: of the numbers of tokens plus positional vectors; None where positions are not added.
        cosines: between its rows.
        change_cosines: between the rows of what training wrote, E - E0; None at the start.
        number_line: |r| between 0, 1, ... 9 and the first principal component of the digits' E - E0, or None.
    """

    percent: int
    table: Statistics
    with_positions: Statistics | None
    cosines: TokenCosines
    change_cosines: TokenCosines | None
    number_line: float | None


@dataclass(frozen=True)
class StartRecord:
    """The kept model that a run started from.

    Args:
        folder: of its results, as it was passed.
        scheme, seed: of its run.
        sha256: of its file.
        loaded: tensors that were copied: those of equal names and shapes.
        fresh: tensors of the run that began anew.
        unused: tensors of the kept model that had no place.
    """

    folder: str
    scheme: str
    seed: int
    sha256: str
    loaded: tuple[str, ...]
    fresh: tuple[str, ...]
    unused: tuple[str, ...]


@dataclass(frozen=True)
class RunResult:
    """One run: one scheme, one seed, trained and measured.

    Args:
        scheme: name of the scheme; of a variant with its settings, as in "rotary@dim=16".
        seed: of tokens, layers and batches.
        parameters: how many numbers the model learns.
        steps: optimizer steps.
        seconds: of training and measuring.
        seconds_per_step: of training alone.
        losses: (step, loss), about fifty of them.
        scores: by length, then by group.
        in_length: mean score over the trained lengths that can be tested.
        shift: by how far every position is shifted.
        token_table: snapshots of the token table; none for other tasks than the expressions.
        file: the trained model, as safetensors, relative to the folder; "" where it was not saved.
        trace: token tables by step and attention by distance, as safetensors, relative to the folder, or "".
        max_length: positions that the scheme was built for: the rows of a learned table.
        base: the scheme that was built: its name without the settings that vary.
        varied: the settings in which the run differs from the comparison.
        start: the kept model that it started from; None of a run from the beginning.
        own: the scheme was built by a function of the caller's own, which results do not hold.
    """

    scheme: str
    seed: int
    parameters: ParameterCount
    steps: int
    seconds: float
    seconds_per_step: float
    losses: tuple[tuple[int, float], ...]
    scores: Mapping[int, Scores]
    in_length: float
    shift: Mapping[int, Shift]
    token_table: tuple[TableSnapshot, ...] = ()
    file: str = ""
    trace: str = ""
    max_length: int = 0
    base: str = ""
    varied: Mapping[str, bool | int | float | str] = field(default_factory=dict)
    start: StartRecord | None = None
    own: bool = False


@dataclass(frozen=True)
class LossesSoFar:
    """The losses of a run by step: of a finished one, or of one that is training."""

    scheme: str
    seed: int
    steps: int  # once it is finished
    losses: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class TokenProbability:
    """A token, and the probability that a model gives it."""

    token: str
    id: int
    probability: float


@dataclass(frozen=True)
class Fingerprint:
    """What a trained scheme assigns to each position.

    Args:
        label: what a number is.
        values: one row for each position or distance; None where a number is not finite.
    """

    label: str
    values: tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True)
class DistanceCurves:
    """What a trained scheme makes of a distance between two positions."""

    label: str  # what a number is
    distances: tuple[int, ...]  # in tokens
    curves: Mapping[str, tuple[float | None, ...]]  # by name, one number for each distance; None where it is not finite


@dataclass(frozen=True)
class SchemeView:
    """The first layer's scheme of one run, as its training left it."""

    doors: tuple[str, ...]  # where it enters the Transformer: "input", "query_key", "score"
    fingerprint: Fingerprint | None  # None for a scheme without positions, or one that depends on content
    by_distance: DistanceCurves | None  # likewise


@dataclass(frozen=True)
class TokenizedText:
    """The tokenizer of a text, and what it made of it."""

    tokenizer: str  # the path of its tokenizer.json
    tokenizer_sha256: str  # of that file
    tokens: int  # number of ids of the whole text
    bytes_per_token: float  # of the whole text in UTF-8
    unknown: float | None  # share of ids that are the token for what is unknown; None where the tokenizer has none


@dataclass(frozen=True)
class TaskDescription:
    """What was trained and tested.

    Args:
        name: of the task.
        unit: what lengths count.
        measure: "accuracy", or a loss such as "nats per byte".
        higher_is_better: of the measure.
        trained: lengths of training.
        tested_in_length: trained lengths that are tested, on sequences that training never showed.
        lengths: other lengths that are tested.
        shift_length: length of the shift test.
        groups: names of the groups of targets that are scored by themselves.
        baselines: scores of predictors that ignore positions, by name and length.
        tokens: the vocabulary, as it is shown.
        identity: what else two comparisons must share to be the same.
        tokenized: the tokenizer of a text; None of a text of bytes, and of other tasks.
        bytes_per_token: of the tokens that are predicted in the test at a length, where they are those of a text.
    """

    name: str
    unit: str
    measure: str
    higher_is_better: bool
    trained: tuple[int, ...]
    tested_in_length: tuple[int, ...]
    lengths: tuple[int, ...]
    shift_length: int
    groups: tuple[str, ...]
    baselines: Mapping[str, Mapping[int, float]]
    tokens: tuple[str, ...]
    identity: str
    tokenized: TokenizedText | None = None
    bytes_per_token: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ShiftSummary:
    """A shift over the seeds of a scheme; a part is None where any seed lacks it."""

    score: Spread | None
    largest_logit_change: Spread | None


@dataclass(frozen=True)
class Summary:
    """The runs of one scheme over its seeds; a spread is None where any seed lacks the number."""

    scores: Mapping[int, Mapping[str, Spread | None]]  # by length, then by group
    in_length: Spread  # over the trained lengths
    shift: Mapping[int, ShiftSummary]  # by how far every position is shifted
    parameters: ParameterCount  # the same for every seed
    seconds_per_step: Spread  # of training


@dataclass(frozen=True)
class ModelRecord:
    """A model of the caller's own, which results do not hold.

    Args:
        name: of the function or class that builds it.
        reads: which of the settings of a model it reads: dim, layers, heads, feedforward, init, table, tied.
    """

    name: str
    reads: tuple[str, ...]


@dataclass(frozen=True)
class Request:
    """What was passed to a comparison beside its settings, by which `whatwhere compare --repeat` repeats it.

    Args:
        files: of a text.
        tokenizer: of a text, or None.
        start: results whose models the runs started from, or None.
        modules: schemes, task and model of the caller's own as FILE.py:NAME; None where one is not in such a file.
        against: the scheme that all others are compared with, or None.
    """

    files: tuple[str, ...]
    tokenizer: str | None
    start: str | None
    modules: tuple[str, ...] | None
    against: str | None = None


@dataclass(frozen=True)
class ComparisonRecord:
    """The content of results.json.

    Args:
        format, version: of the file.
        created: time of writing, in UTC.
        seconds: of the call that wrote it.
        command: the command line that repeats the comparison; None where it cannot name a scheme or task of the
            caller's own.
        versions: of the packages that numbers depend on.
        machine: where it ran.
        device: "cpu" or "cuda".
        threads_per_run: of PyTorch.
        settings: every setting.
        seeds: in the order of the request.
        task: what was trained and tested.
        runs: one for each scheme and seed.
        summary: by scheme, in the order of the request.
        schemes: by name, of the first seed.
        python: in results of an earlier whatwhere, the Python call that repeats the comparison.
        request: what was passed beside the settings; None in results of an earlier whatwhere.
        model: of the caller's own; None is our Transformer.
    """

    format: str
    version: int
    created: str
    seconds: float
    command: str | None
    versions: Mapping[str, str]
    machine: Machine
    device: str
    threads_per_run: int
    settings: Settings
    seeds: tuple[int, ...]
    task: TaskDescription
    runs: tuple[RunResult, ...]
    summary: Mapping[str, Summary]
    schemes: Mapping[str, SchemeView]
    python: str = field(default="", kw_only=True)
    model: ModelRecord | None = field(default=None, kw_only=True)
    request: Request | None = field(default=None, kw_only=True)


def spread(values: Iterable[float | None]) -> Spread | None:
    """Return median, min and max; None where there is no value, or one is missing."""
    values = list(values)
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return None
    return Spread(statistics.median(known), min(known), max(known))


def summarize(runs: Sequence[RunResult]) -> Summary:
    """Summarize the runs of one scheme over its seeds."""
    first = runs[0]
    in_length, seconds = spread(run.in_length for run in runs), spread(run.seconds_per_step for run in runs)
    assert in_length is not None  # a number of every run
    assert seconds is not None
    return Summary(
        scores={
            length: {group: spread(run.scores[length][group] for run in runs) for group in groups}
            for length, groups in first.scores.items()
        },
        in_length=in_length,
        shift={
            shift: ShiftSummary(
                spread(run.shift[shift].score for run in runs),
                spread(run.shift[shift].largest_logit_change for run in runs),
            )
            for shift in first.shift
        },
        parameters=first.parameters,
        seconds_per_step=seconds,
    )
