"""What an operation did to a checkpoint, and what it measured."""

from dataclasses import dataclass

from whatwhere.models.checkpoint.base import Entry


@dataclass(frozen=True)
class Changed:
    """A tensor that was changed.

    Args:
        name: of it.
        before, after: shape and type, as in "30522 x 384 float32".
        what: was done, in a few words.
    """

    name: str
    before: str
    after: str
    what: str

    @classmethod
    def of(cls, entry: Entry, shape: tuple[int, ...], what: str, dtype: str | None = None) -> "Changed":
        """Return the description of a change.

        Args:
            entry: of the tensor before.
            shape: after.
            what: was done.
            dtype: after; None if it is the same.
        """
        before, after = shape_and_type(entry.shape, entry.dtype), shape_and_type(shape, dtype or entry.dtype)
        return cls(entry.name, before, after, what)


@dataclass(frozen=True)
class RowStatistics:
    """Statistics of some rows of a table.

    Args:
        rows: their number.
        median_norm: of up to 2048 of them.
        standard_deviation: of their values about the mean row.
    """

    rows: int
    median_norm: float
    standard_deviation: float


@dataclass(frozen=True)
class TableRows:
    """The rows of a table after its vocabulary has changed.

    Args:
        name: of the table.
        kept: rows of the old table.
        new: the others, or None.
    """

    name: str
    kept: RowStatistics
    new: RowStatistics | None


@dataclass(frozen=True)
class Resized:
    """Measurements of `resize_checkpoint`.

    Args:
        new_ids: of the tokens that were added.
        tables: of the vocabulary.
    """

    new_ids: tuple[int, ...]
    tables: tuple[TableRows, ...]


@dataclass(frozen=True)
class CorpusCheck:
    """A corpus, encoded by the tokenizer before and after trimming.

    Args:
        tokens: in the corpus.
        unknown: how many of them are the unknown token.
        encoded_as_before: whether each token is the same.
    """

    tokens: int
    unknown: int
    encoded_as_before: bool


@dataclass(frozen=True)
class Trimmed:
    """Measurements of `trim_checkpoint`.

    Args:
        tokens_before, tokens_kept: rows of the token table.
        tokens_requested: how many of those kept were named, or occur in the corpus.
        corpus: the check, or None where ids were named.
        tables: of the vocabulary.
    """

    tokens_before: int
    tokens_kept: int
    tokens_requested: int
    corpus: CorpusCheck | None
    tables: tuple[TableRows, ...]


@dataclass(frozen=True)
class Retokenized:
    """Measurements of `move_to_tokenizer`.

    Args:
        tokens: of the new tokenizer.
        copied: tokens of both tokenizers.
        composed: tokens that are sums of old rows.
        method: of these, `subtokens` or `omp`.
        mean_rows: the others.
        tables: of the vocabulary.
    """

    tokens: int
    copied: int
    composed: int
    method: str
    mean_rows: int
    tables: tuple[TableRows, ...]


@dataclass(frozen=True)
class LayoutConverted:
    """Measurements of `convert_layout`.

    Args:
        restored_exactly: tensors whose conversion back gives the same bits.
    """

    restored_exactly: int


@dataclass(frozen=True)
class TableDamage:
    """What a change of type does to the rows of a table.

    Args:
        relative_error: of all values.
        worst_row_cosine, median_row_cosine: of a row and the same row before.
        nearest_kept: share of the ten nearest rows that remain so, for up to 512 rows; None for few rows.
    """

    relative_error: float
    worst_row_cosine: float
    median_row_cosine: float
    nearest_kept: float | None


@dataclass(frozen=True)
class Cast:
    """Measurements of `convert_dtype`.

    Args:
        relative_error: of all values that were cast.
        worst_tensor: the tensor of the largest relative error; "" if none was cast.
        worst_relative_error: of that tensor.
        token_table: the damage to the token table, if it was cast.
    """

    relative_error: float
    worst_tensor: str
    worst_relative_error: float
    token_table: TableDamage | None


@dataclass(frozen=True)
class Exported:
    """Measurements of `convert_format`, where the token table alone is written.

    Args:
        rows: that were written.
    """

    rows: int


Measured = Resized | Trimmed | Retokenized | LayoutConverted | Cast | Exported


@dataclass(frozen=True)
class Report:
    """What was done to a checkpoint.

    Args:
        command: that did it.
        path, out: input and output.
        changed: tensors.
        kept: how many others were copied byte for byte.
        bytes: of the weights that were written.
        measured: depends on the command; None where nothing was measured.
        notes: for the user.
        left_out: files of the folder that were not copied.
    """

    command: str
    path: str
    out: str
    changed: tuple[Changed, ...]
    kept: int
    bytes: int
    measured: Measured | None = None
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def shape_and_type(shape: tuple[int, ...], dtype: str) -> str:
    """Return shape and type as text.

    Args:
        shape, dtype: of a tensor.

    Examples:
        >>> shape_and_type((30522, 384), "float32")
        '30522 x 384 float32'
    """
    return f"{' x '.join(map(str, shape)) or 'a number'} {dtype}"
