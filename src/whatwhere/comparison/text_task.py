"""The task text: a language model of bytes, on the user's own files."""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from math import log
from typing import final

import torch
from jaxtyping import Int64
from torch import Tensor

from whatwhere.comparison.tasks import Batch
from whatwhere.errors import SettingError, TextError


@final
class Text:
    """Predict each next byte of a text, in windows of the trained length and longer.

    The last tenth of the text is held out. Windows do not overlap, so in longer windows fewer bytes have little
    context: the last quarter of a window is scored by itself, where this "early token curse" plays no part.

    Args:
        text: the bytes; None takes the Python documentation that every CPython contains (pydoc_data.topics).
        trained: the window to train on, in bytes.

    Raises:
        SettingError: If there is not exactly one window, or it is below 2 bytes.
        TextError: If a text is too short for the window.

    Examples:
        >>> Text(b"the cat sat on the mat. " * 200, trained=(16,)).test_set(32, 4).ids.shape
        torch.Size([4, 32])
    """

    name: str = "text"
    unit: str = "bytes"
    measure: str = "nats per byte"
    vocab_size: int = 256
    tokens: tuple[str, ...] = tuple(chr(n) if 32 < n < 127 else f"0x{n:02x}" for n in range(256))
    groups: tuple[str, ...] = ("last quarter",)

    def __init__(self, text: bytes | None = None, trained: Sequence[int] = (64,)) -> None:
        if len(trained) != 1 or trained[0] < 2:
            raise SettingError(f"text is trained on one window of at least 2 bytes, but trained={tuple(trained)}.")
        self.trained = self.tested_in_length = tuple(trained)
        self.shift_length = max(1, trained[0] // 2)
        content = python_documentation() if text is None else text
        self.identity = f"sha256 {sha256(content).hexdigest()}"
        data = torch.frombuffer(bytearray(content), dtype=torch.uint8).long()
        cut = len(data) * 9 // 10
        self._train, self._test = data[:cut], data[cut:]
        if len(self._train) <= trained[0] or len(self._test) <= trained[0]:
            raise TextError(
                f"the text has {len(data)} bytes, too few for windows of {trained[0]}: nine tenths train, one tenth "
                "tests.\nPass a longer text or a shorter window."
            )

    def token_count(self, length: int) -> int:
        """Return the length: a byte is a token."""
        return length

    def sample(self, batch: int, generator: torch.Generator) -> Batch:
        """Sample windows of the training text."""
        window = self.trained[0]
        starts = torch.randint(0, len(self._train) - window, (batch, 1), generator=generator)
        return self._windows(self._train[starts + torch.arange(window + 1)])

    def test_set(self, length: int, count: int) -> Batch:
        """Return windows of the held-out text that do not overlap, as many as there are up to count.

        Raises:
            TextError: If the held-out text is shorter than a window.
        """
        whole = (len(self._test) - 1) // length
        if whole < 1:
            raise TextError(
                f"the held-out tenth of the text has {len(self._test)} bytes, too few for a window of {length}.\n"
                "Pass a longer text or shorter lengths."
            )
        starts = torch.arange(min(count, whole))[:, None] * length
        return self._windows(self._test[starts + torch.arange(length + 1)])

    def baselines(self, length: int, test_set: Batch) -> Mapping[str, float]:
        """Return the loss of a uniform prediction, and of each byte's frequency in the training text."""
        frequency = self.training_counts().double() + 1
        loss = -(frequency / frequency.sum()).log()[test_set.targets].mean().item()
        return {"all bytes alike": log(256), "frequency of bytes": loss}

    def training_counts(self) -> Int64[Tensor, " vocab_size"]:
        """Return how often each byte occurs in the training text."""
        return torch.bincount(self._train, minlength=256)

    def _windows(self, bytes_: Int64[Tensor, "batch window"]) -> Batch:
        targets = bytes_[:, 1:]
        indices = torch.arange(targets.shape[1]).expand_as(targets)
        groups = torch.where(indices >= targets.shape[1] * 3 // 4, 0, -1)
        return Batch(bytes_[:, :-1], targets, groups, None)


@final
class Bytes:
    """The tokens of the task text, without its text: what is needed to ask its models for the next byte.

    Examples:
        >>> Bytes().encode("a b")
        ([97, 32, 98], ['a', '0x20', 'b'])
    """

    name: str = Text.name
    tokens: tuple[str, ...] = Text.tokens

    def token_count(self, length: int) -> int:
        """Return the length: a byte is a token."""
        return length

    def encode(self, text: str) -> tuple[list[int], list[str]]:
        """Return the bytes of a text in UTF-8, and how each is shown.

        Raises:
            TextError: If it is empty, or has half a character.
        """
        try:
            ids = list(text.encode())
        except UnicodeEncodeError:
            raise TextError("the text has half a character (a lone surrogate): read it as UTF-8.") from None
        if not ids:
            raise TextError("the text is empty: write its beginning, and models predict the next byte.")
        return ids, [self.tokens[n] for n in ids]

    def answer(self, ids: Sequence[int]) -> int | None:
        """Return None: a text may go on in many ways."""
        return None


def python_documentation() -> bytes:
    """Return the language reference that `help()` prints: about 700 kB of English with code, as UTF-8."""
    from pydoc_data.topics import topics

    return "\n\n".join(topics[name] for name in sorted(topics)).encode()
