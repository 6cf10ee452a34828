"""The task text: a language model of bytes, or of a tokenizer's tokens, on the user's own files."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from math import log
from pathlib import Path
from typing import final

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from whatwhere.comparison.byte_text import ByteText, OnRead, in_memory
from whatwhere.comparison.results import TokenizedText
from whatwhere.comparison.tasks import Batch
from whatwhere.comparison.token_text import TokenText, encoded, first_held_out, load_tokenizer, shown_tokens
from whatwhere.errors import SettingError, TextError


@final
class Text:
    """Predict each next byte of a text, or its next token, in windows of the trained length and longer.

    The last tenth of the text is held out. Windows do not overlap, so in longer windows fewer bytes have little
    context: the last quarter of a window is scored by itself, where this "early token curse" plays no part. Of a
    tokenizer's tokens, lengths count tokens, and the task has another name: what is claimed of bytes is not judged.

    Args:
        text: the bytes or ids, in memory or in files of any size, of which only windows are read; None takes the
            Python documentation that every CPython contains (pydoc_data.topics).
        trained: the window to train on, in bytes, or tokens.

    Raises:
        SettingError: If there is not exactly one window, or it is below 2.
        TextError: If a text is too short for the window.
    """

    name: str = "text"
    unit: str = "bytes"
    measure: str = "nats per byte"
    groups: tuple[str, ...] = ("last quarter",)

    def __init__(self, text: bytes | ByteText | TokenText | None = None, trained: Sequence[int] = (64,)) -> None:
        if len(trained) != 1 or trained[0] < 2:
            raise SettingError(f"text is trained on one window of at least 2 bytes, but trained={tuple(trained)}.")
        self.trained = self.tested_in_length = tuple(trained)
        self.shift_length = max(1, trained[0] // 2)
        content = python_documentation() if text is None else text
        content = in_memory(content) if isinstance(content, bytes) else content
        self._text = TokenText(content) if isinstance(content, ByteText) else content
        self.tokenized, self.identity, self.vocab_size = self._text.about, self._text.identity, self._text.vocab_size
        if self.tokenized is not None:
            self.name, self.unit, self.measure = "text in tokens", "tokens", "nats per token"
        self._cut = first_held_out(len(self._text))
        if self._cut <= trained[0] or len(self._text) - self._cut <= trained[0]:
            raise TextError(
                f"the text has {len(self._text)} {self.unit}, too few for windows of {trained[0]}: nine tenths train, "
                "one tenth tests.\nPass a longer text or a shorter window."
            )

    @property
    def tokens(self) -> tuple[str, ...]:
        """The vocabulary, as it is shown."""
        return self._text.tokens

    def in_file(self, folder: Path, on_read: OnRead = lambda count: None) -> "Text":
        """Return the same task on a copy of the text in a folder, which is sent to other processes by its path."""
        return Text(self._text.in_file(folder, on_read), self.trained)

    def check(self) -> None:
        """Raise TextError if the text has changed, which a process may have to read it all for, once."""
        self._text.stored.require_unchanged()

    @property
    def size(self) -> int:
        """The number of bytes that are kept in a file."""
        return len(self._text.stored)

    def token_count(self, length: int) -> int:
        """Return the length, which counts tokens."""
        return length

    def sample(self, batch: int, generator: torch.Generator) -> Batch:
        """Sample windows of the training text."""
        window = self.trained[0]
        starts = torch.randint(0, self._cut - window, (batch, 1), generator=generator)
        return self._windows(starts[:, 0].tolist(), window)

    def test_set(self, length: int, count: int) -> Batch:
        """Return windows of the held-out text that do not overlap, as many as there are up to count."""
        return self._windows(self._test_starts(length, count), length)

    def bytes_per_token(self, length: int, count: int) -> float | None:
        """Return the mean bytes of the tokens that this test set predicts; None where the text is not there."""
        starts = self._test_starts(length, count)
        # Each window predicts the first token of the next one, so that these are all tokens from the second on.
        tested = self._text.bytes_of(starts.start + 1, starts.stop + 1)
        return None if tested is None else tested / (starts.stop - starts.start)

    def _test_starts(self, length: int, count: int) -> range:
        held_out = len(self._text) - self._cut
        whole = (held_out - 1) // length
        if whole < 1:
            raise TextError(
                f"the held-out tenth of the text has {held_out} {self.unit}, too few for a window of {length}.\n"
                "Pass a longer text or shorter lengths."
            )
        return range(self._cut, self._cut + min(count, whole) * length, length)

    def baselines(self, length: int, test_set: Batch) -> Mapping[str, float]:
        """Return the loss of a uniform prediction, and of each token's frequency in the training text."""
        frequency = self.training_counts().double() + 1
        loss = -(frequency / frequency.sum()).log()[test_set.targets].mean().item()
        return {f"all {self.unit} alike": log(self.vocab_size), f"frequency of {self.unit}": loss}

    def training_counts(self) -> Int64[Tensor, " vocab_size"]:
        """Return how often each token occurs in the training text."""
        return self._counts.clone()

    @cached_property
    def _counts(self) -> Tensor:
        return torch.from_numpy(self._text.counts(self._cut))

    def _windows(self, starts: Sequence[int], length: int) -> Batch:
        ids = torch.from_numpy(self._text.windows(starts, length + 1).astype(np.int64))
        targets = ids[:, 1:]
        indices = torch.arange(length).expand_as(targets)
        groups = torch.where(indices >= length * 3 // 4, 0, -1)
        return Batch(ids[:, :-1], targets, groups, None)


@final
class TextPrompts:
    """The task text as its models are asked, without its text: of bytes, or of the tokens of a tokenizer."""

    def __init__(self, tokenized: TokenizedText | None = None) -> None:
        self._tokenizer = None if tokenized is None else load_tokenizer(tokenized)
        self.tokens = shown_tokens(tokenized)

    def token_count(self, length: int) -> int:
        """Return the length, which counts tokens."""
        return length

    def encode(self, text: str) -> tuple[list[int], list[str]]:
        """Return the ids of a text, and how each is shown."""
        try:
            bytes_ = text.encode()
        except UnicodeEncodeError:
            raise TextError("the text has half a character (a lone surrogate): read it as UTF-8.") from None
        ids = list(bytes_) if self._tokenizer is None else next(encoded(self._tokenizer, [text])).tolist()
        if not ids:
            raise TextError("the text is empty, or has no token: write its beginning, and models predict the next one.")
        return ids, [self.tokens[n] for n in ids]

    def answer(self, ids: Sequence[int]) -> int | None:
        """Return None: a text may go on in many ways."""
        return None


def python_documentation() -> bytes:
    """Return the language reference that `help()` prints: about 700 kB of English with code, as UTF-8."""
    from pydoc_data.topics import topics

    return "\n\n".join(topics[name] for name in sorted(topics)).encode()
