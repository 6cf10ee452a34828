"""What is measured, as types: the lines that workers write, and the file of results."""

from typing import NotRequired, TypedDict


class Spread(TypedDict):
    """Median and quartiles over rounds."""

    median: float
    low: float
    high: float


class Times(TypedDict):
    """The times of one candidate under one regime: seconds, and ratios to the limit of the same round."""

    seconds: Spread
    ratio: Spread
    rounds: list[float]


class Measured(TypedDict):
    """One candidate under one regime; `times` is None where it is absent or failed, and `note` is the reason."""

    ours: bool
    note: str
    error: float | None
    peak: int | None
    times: Times | None


class Line(TypedDict):
    """One variant under one regime, as a worker writes it: candidates by name."""

    variant: str
    limit: str
    error: str
    unit: int
    rows: dict[str, Measured]


class CandidateRecord(TypedDict):
    """One candidate of a variant, with its times by regime."""

    candidate: str
    ours: bool
    note: str
    error: float | None
    peak: int | None
    regimes: dict[str, Times]


class VariantRecord(TypedDict):
    """One variant of a case; the first row is the limit."""

    variant: str
    limit: str
    error: str
    unit: int
    rows: list[CandidateRecord]


class Load(TypedDict):
    """Load averages over 1, 5 and 15 minutes; None where the system has none."""

    start: list[float] | None
    end: list[float] | None


class CaseRecord(TypedDict):
    """A case that was measured, and on which code; `unavailable` has the reason for each regime that is missing."""

    code: str
    date: str
    load: Load
    unavailable: dict[str, str]
    variants: list[VariantRecord]


class Settings(TypedDict):
    """The options that numbers depend on."""

    quick: bool
    threads: int
    device: str
    seconds: float | None


class Machine(TypedDict):
    """The machine that numbers belong to."""

    processor: str
    cores: int
    system: str
    caches: dict[str, str]
    memory: int | None
    kernels: str
    gpu: NotRequired[str]


class Results(TypedDict):
    """The file of results."""

    format: str
    version: int
    command: str
    settings: Settings
    machine: Machine
    versions: dict[str, str]
    cases: dict[str, CaseRecord]


class Judgement(TypedDict):
    """A target, as `--json` prints it: `value` and `met` are None where nothing was measured."""

    case: str
    variant: str
    candidate: str
    target: str
    value: float | None
    met: bool | None
