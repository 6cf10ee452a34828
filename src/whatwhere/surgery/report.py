"""Reports of surgery: changed tensors and measurements."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from whatwhere.models.checkpoint.base import Entry
from whatwhere.models.checkpoint.safetensors import Part
from whatwhere.records import Missing

if TYPE_CHECKING:
    from whatwhere.models.probe.findings import ProbedRotation


@dataclass(frozen=True)
class Changed:
    """A tensor that was changed: shape and type before and after, as in "30522 x 384 float32", and how."""

    name: str
    before: str
    after: str
    what: str

    @classmethod
    def of(cls, before: Entry, after: Entry | Part, what: str) -> "Changed":
        """Describe the change of a tensor."""
        old, new = (f"{' x '.join(map(str, one.shape)) or 'a number'} {one.dtype}" for one in (before, after))
        return cls(before.name, old, new, what)


@dataclass(frozen=True)
class RowStatistics:
    """Some rows of a table: the median norm of up to 2048, and the standard deviation of values less the mean row."""

    rows: int
    median_norm: float
    standard_deviation: float | None


@dataclass(frozen=True)
class TableRows:
    """The rows of a table after its vocabulary has changed: statistics of old rows, and of new ones if any."""

    name: str
    kept: RowStatistics
    new: RowStatistics | None


@dataclass(frozen=True)
class Resized:
    """Measurements of `resize`: ids of the tokens that were added, and the tables of the vocabulary."""

    new_ids: tuple[int, ...]
    tables: tuple[TableRows, ...]


@dataclass(frozen=True)
class CorpusCheck:
    """The tokens of a corpus, the unknown ones among them, and whether trimming changes none."""

    tokens: int
    unknown: int
    encoded_as_before: bool


@dataclass(frozen=True)
class NotCopied:
    """A file of the folder that was not copied, and the reason."""

    name: str
    why: str


@dataclass(frozen=True)
class Trimmed:
    """Measurements of `trim`: tokens are rows of the token table, and bytes those of the weights."""

    tokens_before: int
    tokens_kept: int
    tokens_requested: int  # by their ids, or in the corpus
    corpus: CorpusCheck | None  # None if ids were passed
    tables: tuple[TableRows, ...]
    bytes_saved: int


@dataclass(frozen=True)
class Retokenized:
    """Measurements of `convert --tokenizer`: how many tokens of the new tokenizer have which rows."""

    tokens: int
    copied: int  # are in both tokenizers
    composed: int  # have sums of old rows
    method: str  # of these, `subtokens` or `omp`
    mean_rows: int
    tables: tuple[TableRows, ...]


@dataclass(frozen=True)
class TableDamage:
    """The error that a change of type causes in the rows of a table; cosines are of a row before and after."""

    relative_error: float
    worst_row_cosine: float
    median_row_cosine: float
    nearest_kept: float | None  # share of the ten nearest neighbors that remain, of up to 512 rows; None for few rows


@dataclass(frozen=True)
class Cast:
    """Measurements of `convert --dtype`: errors of all values, of the worst tensor and of the token table."""

    relative_error: float
    worst_tensor: str
    worst_relative_error: float
    token_table: TableDamage | None


@dataclass(frozen=True)
class RepairedRow:
    """A row that was repaired; its token, if any, and the text of that, if its bytes are text."""

    id: int
    token: str | None
    text: str | None
    why: str  # "zero", "not finite", "under-trained", "low norm", "high norm", "near the mean" or "requested"
    made_of: str  # its direction: that of "pieces", "output row" or "covariance", a sample
    pieces: tuple[int, ...]  # ids of the tokens whose mean has its direction; none where it is made of something else
    norm_before: float | None  # None where it was not finite
    norm_after: float


@dataclass(frozen=True)
class RepairedTable:
    """The repaired rows of a table, and the median norm of its other rows."""

    name: str
    rows: tuple[RepairedRow, ...]
    median_norm: float


@dataclass(frozen=True)
class Repaired:
    """Measurements of `repair` by the method `covariance` or `subtokens`: tables with repaired rows."""

    method: str
    tables: tuple[RepairedTable, ...]


@dataclass(frozen=True)
class Extended:
    """Measurements of `extend`: the lengths, and what a probe measured of tiny models of both configurations."""

    scaling: str
    trained: int
    length: int
    factor: float
    before: "tuple[ProbedRotation, ...] | Missing"
    after: "tuple[ProbedRotation, ...] | Missing"


Measured = Resized | Trimmed | Retokenized | Cast | Repaired | Extended


@dataclass(frozen=True)
class Report:
    """The result of a command."""

    command: str
    path: str
    out: str
    changed: tuple[Changed, ...]
    kept: int  # other tensors, which were copied byte for byte
    bytes: int  # of the weights that were written
    measured: Measured | None = None
    notes: tuple[str, ...] = ()  # for the user
    not_copied: tuple[NotCopied, ...] = ()
