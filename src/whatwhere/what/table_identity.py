"""Which file the optimizer state in a folder belongs to: that of its header, and of some rows as training left them.

The header of a file that `FileTokenEmbedding.create` wrote has a random id. Those of models have none, and copies of
one model have the same header; so rows are compared too: some spread over the table, and some of the last flush, which
an earlier copy of the file does not have. Both survive a copy of the file and the folder to another disk.
"""

import os
from dataclasses import dataclass
from hashlib import blake2b, sha256

import numpy as np
from jaxtyping import Bool, Int64, UInt8

from whatwhere.what.matrix_file import MatrixFile

_SPREAD = 64
"""Rows that are compared, of the table and of the last flush."""
_TORN = 8
"""Rows of an interrupted flush that may be neither the old ones nor the new ones."""


@dataclass(frozen=True)
class Identity:
    """What a file has to be, so that the state of its optimizer fits.

    Args:
        header: SHA-256 of the header, with the size of the file.
        rows: some rows of the table, ascending.
        now: a digest of each.
        before: likewise, as it was before the flush that is being made; the same where none is.
    """

    header: str
    rows: list[int]
    now: list[str]
    before: list[str]

    def difference(self, file: MatrixFile, pending: Int64[np.ndarray, " changed"]) -> str | None:
        """Return how a file differs; None if it is the one.

        Args:
            file: an open one.
            pending: rows that an interrupted flush may have written, or not, or in part.
        """
        if header_digest(file) != self.header:
            return "belongs to a file with another header or size"
        inside = all(0 <= row < file.shape[0] for row in self.rows)
        if not inside or len({len(self.rows), len(self.now), len(self.before)}) > 1:
            return "is damaged: it names no rows of the table"
        rows = np.array(self.rows, np.int64)
        found = _digests(file.read(rows))
        right = np.array([each in pair for each, *pair in zip(found, self.now, self.before, strict=True)], bool)
        written: Bool[np.ndarray, " rows"] = np.isin(rows, pending)
        if not right[~written].all():
            row = int(rows[~written & ~right][0])
            return f"belongs to another file, or another program changed this one, whose row {row:,} is not what it was"
        if int((~right).sum()) > max(_TORN, 7 * int(written.sum()) // 8):
            return "has an unfinished flush of another file, whose rows are not those of this one"
        return None


def spread(count: int) -> Int64[np.ndarray, " some"]:
    """Return the numbers of some rows of many, spread evenly, ascending.

    Args:
        count: of all rows.

    Examples:
        >>> spread(1000)[:4].tolist(), len(spread(1000)), spread(3).tolist()
        ([0, 15, 31, 47], 64, [0, 1, 2])
    """
    return np.linspace(0, count - 1, min(count, _SPREAD)).astype(np.int64)


def identity(
    header: str, rows: Int64[np.ndarray, " rows"], now: UInt8[np.ndarray, "rows b"], before: UInt8[np.ndarray, "rows b"]
) -> Identity:
    """Return the identity of a file from some of its rows.

    Args:
        header: see `header_digest`.
        rows: their numbers, ascending.
        now, before: their bytes after a flush and before it.
    """
    return Identity(header, rows.tolist(), _digests(now), _digests(before))


def header_digest(file: MatrixFile) -> str:
    """Return the SHA-256 of a file's header and size.

    Args:
        file: an open one.
    """
    number = file.fd.number
    length = int.from_bytes(os.pread(number, 8, 0), "little")
    return sha256(os.pread(number, length, 8) + str(os.fstat(number).st_size).encode()).hexdigest()


def _digests(rows: UInt8[np.ndarray, "rows bytes"]) -> list[str]:
    return [blake2b(row.tobytes(), digest_size=8).hexdigest() for row in rows]
