"""How often each token stands in a text that was given besides the model."""

from pathlib import Path
from typing import TYPE_CHECKING, final

import numpy as np
from jaxtyping import Int64

from whatwhere.errors import TextError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

LARGEST = 10_000_000
"""Characters that are read: rare tokens of a large vocabulary stay unseen in any text, and this takes seconds."""
_LINES = 4096


@final
class Corpus:
    """A text file whose tokens are counted.

    Args:
        path: of a text in UTF-8.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.whole = True
        try:
            with path.open(encoding="utf-8") as file:
                self._text = file.read(LARGEST)
                self.whole = not file.read(1)
        except UnicodeDecodeError:
            raise TextError(f"{path} is not UTF-8.\nConvert it: iconv -f ... -t utf-8.") from None
        except OSError as problem:
            raise TextError(f"{path} cannot be read: {problem.strerror}.") from None

    def counts(self, tokenizer: "Tokenizer", rows: int) -> Int64[np.ndarray, " rows"]:
        """Return how often each id stands in the text, read line by line; its special tokens are not added."""
        lines = self._text.splitlines(keepends=True)
        counts = np.zeros(rows, np.int64)
        for first in range(0, len(lines), _LINES):
            for code in tokenizer.encode_batch(lines[first : first + _LINES], add_special_tokens=False):
                ids = np.array(code.ids, np.int64)
                counts += np.bincount(ids[ids < rows], minlength=rows)
        return counts
