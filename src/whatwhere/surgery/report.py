"""Reports of surgery: changed tensors and measurements."""

from dataclasses import dataclass

from whatwhere.models.checkpoint.base import Entry
from whatwhere.models.checkpoint.safetensors import Part


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
    """Measurements of `trim`.

    Args:
        tokens_before, tokens_kept: rows of the token table.
        tokens_requested: kept tokens whose ids were passed, or that occur in the corpus.
        corpus: None if ids were passed.
        bytes_saved: of the weights.
    """

    tokens_before: int
    tokens_kept: int
    tokens_requested: int
    corpus: CorpusCheck | None
    tables: tuple[TableRows, ...]
    bytes_saved: int


@dataclass(frozen=True)
class Retokenized:
    """Measurements of `convert --tokenizer`.

    Args:
        tokens: of the new tokenizer.
        copied: tokens in both tokenizers, whose rows are copied.
        composed: tokens whose rows are sums of old rows, by the `method` `subtokens` or `omp`.
        mean_rows: other tokens, which have the mean row.
    """

    tokens: int
    copied: int
    composed: int
    method: str
    mean_rows: int
    tables: tuple[TableRows, ...]


@dataclass(frozen=True)
class TableDamage:
    """The error that a change of type causes in the rows of a table.

    Args:
        worst_row_cosine, median_row_cosine: of each row before and after.
        nearest_kept: share of the ten nearest neighbors that remain, of up to 512 rows; None for few rows.
    """

    relative_error: float
    worst_row_cosine: float
    median_row_cosine: float
    nearest_kept: float | None


@dataclass(frozen=True)
class Cast:
    """Measurements of `convert --dtype`: errors of all values, of the worst tensor and of the token table."""

    relative_error: float
    worst_tensor: str
    worst_relative_error: float
    token_table: TableDamage | None


@dataclass(frozen=True)
class RepairedRow:
    """A row that was repaired; its token, if any, and the text of that, if its bytes are text.

    Args:
        why: "zero", "not finite", "under-trained", "low norm", "high norm", "near the mean" or "requested".
        made_of: its direction: that of "pieces", "output row" or "covariance", a sample.
        pieces: ids of the tokens whose mean has its direction; none where it is made of something else.
        norm_before, norm_after: of the row; None where it was not finite.
    """

    id: int
    token: str | None
    text: str | None
    why: str
    made_of: str
    pieces: tuple[int, ...]
    norm_before: float | None
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


Measured = Resized | Trimmed | Retokenized | Cast | Repaired


@dataclass(frozen=True)
class Report:
    """The result of a command.

    Args:
        path, out: input and output.
        kept: number of other tensors, which were copied byte for byte.
        bytes: size of the weights that were written.
        notes: for the user.
    """

    command: str
    path: str
    out: str
    changed: tuple[Changed, ...]
    kept: int
    bytes: int
    measured: Measured | None = None
    notes: tuple[str, ...] = ()
    not_copied: tuple[NotCopied, ...] = ()
