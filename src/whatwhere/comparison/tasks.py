"""The interface of a task, and the tasks: two with one answer for each sequence, and a language model.

expressions   the first tutorial's: Last(4,0,7) -> 7; it takes the operator, and the order of the arguments
recall        associative recall, which letter followed this one: a K c R x B ? c -> R
text          each next byte, or token, of the user's own files
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from math import log
from pathlib import Path
from typing import Protocol, TypeGuard, final, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from whatwhere.comparison.byte_text import ByteText, OnRead, in_memory
from whatwhere.comparison.results import TokenizedText
from whatwhere.comparison.token_text import TokenText, encoded, first_held_out, shown_tokens
from whatwhere.errors import SettingError, TextError
from whatwhere.escape import readable_token
from whatwhere.models.checkpoint.tokenizer_files import unchanged_tokenizer
from whatwhere.models.model_text import shown_texts
from whatwhere.what.expressions import EXPRESSION_TOKENS, expression_tokenizer
from whatwhere.what.text import encode

VALIDATED = 8192  # tokens of all validation sets


@dataclass(frozen=True)
class Batch:
    """Sequences with their targets."""

    ids: Int64[Tensor, "batch tokens"]  # the tokens
    targets: Int64[Tensor, " batch *tokens"]  # (batch) with one for each sequence; -100 where there is none
    groups: Int64[Tensor, " batch *tokens"]  # the number of the group that each target belongs to, -1 for none
    at: int | None  # the slot at whose output the target is predicted, such as -1; None where each token has a target


@runtime_checkable
class Task(Protocol):
    """The interface of a task; a task of your own needs these attributes and methods and nothing else."""

    name: str  # of the task
    unit: str  # what lengths count, such as "arguments"
    measure: str  # "accuracy", or "nats per byte" and the like, where lower is better
    vocab_size: int  # number of tokens in the vocabulary
    groups: tuple[str, ...]  # that scores are split into, by name
    trained: tuple[int, ...]  # the lengths of training
    tested_in_length: tuple[int, ...]  # those of them that can be tested on sequences that training never shows
    shift_length: int  # the length of the shift test
    identity: str  # whatever else two runs must share to be compared, such as a digest of the text

    @property
    def tokens(self) -> tuple[str, ...]:
        """The vocabulary, as it is shown."""

    def token_count(self, length: int) -> int:
        """Return the number of tokens of a sequence of this length."""

    def sample(self, batch: int, generator: torch.Generator) -> Batch:
        """Sample so many training sequences from the generator."""

    def test_set(self, length: int, count: int) -> Batch:
        """Return so many sequences that training never shows, the same at every call."""

    def baselines(self, length: int, test_set: Batch) -> Mapping[str, float]:
        """Return the scores of predictors that ignore positions, by name; each is a finite number."""


def is_task(value: object) -> TypeGuard[Task]:
    """Return whether an object has all that a task needs."""
    return not isinstance(value, type) and isinstance(value, Task)


def identity_of(task: Task, lengths: Sequence[int]) -> str:
    """Return the identity of a task; of one's own with a digest of its sequences, which must be the same again."""
    if isinstance(task, Expressions | Recall | Text):
        return task.identity
    made = [
        [task.sample(8, torch.Generator().manual_seed(0))]
        + [task.test_set(n, 8) for n in (*task.tested_in_length, *lengths)]
        for _ in range(2)
    ]
    first, again = (repr([[x.tolist() for x in (b.ids, b.targets, b.groups)] for b in each]) for each in made)
    if first != again:
        raise SettingError(
            f"the task {task.name!r} makes other sequences when it is called again.\nUse the generator in sample, and "
            "one with a fixed seed in test_set."
        )
    return f"{task.identity} {sha256(first.encode()).hexdigest()[:16]}"


def held_out(ids: Int64[Tensor, "batch tokens"]) -> Bool[Tensor, " batch"]:
    """Return which sequences are held out for the test: about a tenth, by a hash of the tokens, so none is in both.

    FNV-1a over the tokens, then the finalizer of MurmurHash3, in 32 bits.
    """
    value, low = torch.full(ids.shape[:1], 2_166_136_261, device=ids.device), 2**32 - 1
    # int64 products wrap, which does not change their lower 32 bits.
    for column in ids.unbind(1):
        value = ((value ^ column) * 16_777_619) & low
    # Without this step what is held out is a lattice: the first two digits nearly determine the third.
    for shift, factor in ((16, 0x85EB_CA6B), (13, 0xC2B2_AE35), (16, 1)):
        value = ((value ^ (value >> shift)) * factor) & low
    return value % 10 == 0


def _one_of(lengths: Sequence[int], generator: torch.Generator) -> int:
    return lengths[int(torch.randint(len(lengths), (1,), generator=generator))]


def answered_at(direction: str) -> int:
    """Return the slot at whose output a sequence is answered: a decoder's last, an encoder's first."""
    return 0 if direction == "encoder" else -1


@final
class Expressions:
    """Evaluate `Op(d,d,..)` with First, Second, Last, Max or Min: one digit is the answer.

    Digits are uniform; for Max and Min the *answer* is uniform, or "always 9" would be right 97 % of the time at 32
    digits. A tenth of the expressions, by hash, is held out. Those of equal digits never are: among them are
    the 50 of one argument, and `Max(0,0,0)`, without which no training would show a Max that is 0.

    Args:
        trained: numbers of arguments to train on; each batch has one of them.
        direction: a decoder predicts the answer at `)`, an encoder at the operator, as the tutorial does.

    Raises:
        SettingError: If the number of arguments is missing or below 1.
    """

    name: str = "expressions"
    unit: str = "arguments"
    measure: str = "accuracy"
    vocab_size: int = 20
    tokens: tuple[str, ...] = EXPRESSION_TOKENS
    groups: tuple[str, ...] = ("First", "Second", "Last", "Max", "Min")

    def __init__(self, trained: Sequence[int] = (1, 2, 3, 4, 5, 6), direction: str = "decoder") -> None:
        if not trained or min(trained) < 1:
            raise SettingError(f"expressions have at least one argument, but trained={tuple(trained)}.")
        self.trained = tuple(trained)
        self.tested_in_length = tuple(n for n in self.trained if n > 1) or self.trained
        # Half the longest: so that learned positions have rows for some shifts too.
        self.shift_length = min(n for n in self.trained if 2 * n >= max(self.trained))
        self.identity: str = direction
        self.direction = direction

    def token_count(self, length: int) -> int:
        """Return 2 * length + 2: operator, brackets, digits and the commas between them."""
        return 2 * length + 2

    def sample(self, batch: int, generator: torch.Generator) -> Batch:
        """Sample expressions of one of the trained numbers of arguments; held-out ones have no target."""
        sampled = self._expressions(_one_of(self.trained, generator), batch, generator)
        return replace(sampled, targets=sampled.targets.masked_fill(_reserved(sampled.ids), -100))

    def test_set(self, length: int, count: int) -> Batch:
        """Return held-out expressions of a trained length; any expressions of one argument, or of another length."""
        generator = torch.Generator().manual_seed(9_990_000 + length)
        if length not in self.trained or length == 1:
            return self._expressions(length, count, generator)
        parts: list[Batch] = []
        while sum(len(part.ids) for part in parts) < count:
            sampled = self._expressions(length, 10 * count, generator)
            kept = _reserved(sampled.ids)
            parts.append(Batch(sampled.ids[kept], sampled.targets[kept], sampled.groups[kept], sampled.at))
        ids, targets, groups = (
            torch.cat([getattr(part, name) for part in parts])[:count] for name in ("ids", "targets", "groups")
        )
        return Batch(ids, targets, groups, parts[0].at)

    def encode(self, text: str) -> tuple[list[int], list[str]]:
        """Return the ids and tokens of a text such as "Max(1,6,2)"."""
        return encode(expression_tokenizer(), text)

    def answer(self, ids: Sequence[int]) -> int | None:
        """Return the id of the correct answer; None where the ids are not an operator with digits."""
        operator, digits = ids[0] - 12, [number - 2 for number in ids[2:-1:2]]
        whole = len(ids) == 2 * len(digits) + 2 and (ids[1], ids[-1]) == (17, 18) and {*ids[3:-1:2]} <= {19}
        if not (whole and digits and 0 <= operator < 5 and all(0 <= digit <= 9 for digit in digits)):
            return None
        return int(_value(torch.tensor([operator]), torch.tensor([digits]))) + 2

    def baselines(self, length: int, test_set: Batch) -> Mapping[str, float]:
        """Return chance, the constant answers 9 for Max and 0 for Min, and the best score without the order."""
        digits = test_set.ids[:, 2 : 2 * length + 1 : 2] - 2
        answers, operators = test_set.targets - 2, test_set.groups
        constant = torch.where(operators == 3, 9, 0)
        most = torch.nn.functional.one_hot(digits, 10).sum(1).amax(1) / length
        return {
            "chance": 1 / 10,
            "always 9 or 0": (answers == constant).float().mean().item(),
            "order-free ceiling": torch.where(operators >= 3, 1.0, most).mean().item(),
        }

    def _expressions(self, length: int, count: int, generator: torch.Generator) -> Batch:
        digits = torch.randint(0, 10, (count, length), generator=generator)
        operators = torch.randint(0, 5, (count,), generator=generator)
        # For Max and Min the answer is sampled first and put into a random slot; the other digits do not exceed it.
        extreme = torch.randint(0, 10, (count, 1), generator=generator)
        share = torch.rand(count, length, generator=generator)
        slot = torch.randint(0, length, (count, 1), generator=generator)
        below = (share * (extreme + 1)).long().scatter(1, slot, extreme)
        above = (extreme + (share * (10 - extreme)).long()).scatter(1, slot, extreme)
        digits = torch.where(operators[:, None] == 3, below, torch.where(operators[:, None] == 4, above, digits))
        ids = torch.full((count, self.token_count(length)), 19)
        ids[:, 0], ids[:, 1], ids[:, -1] = operators + 12, 17, 18
        ids[:, 2 : 2 * length + 1 : 2] = digits + 2
        return Batch(ids, _value(operators, digits) + 2, operators, answered_at(self.direction))


def _value(operators: Int64[Tensor, " batch"], digits: Int64[Tensor, "batch arguments"]) -> Int64[Tensor, " batch"]:
    """Evaluate expressions."""
    second = digits[:, min(1, digits.shape[1] - 1)]
    by_operator = torch.stack([digits[:, 0], second, digits[:, -1], digits.amax(1), digits.amin(1)])
    return by_operator.gather(0, operators[None])[0]


def _reserved(expressions: Int64[Tensor, "batch tokens"]) -> Bool[Tensor, " batch"]:
    """Return which expressions are held out for the test."""
    digits = expressions[:, 2:-1:2]
    return held_out(expressions) & (digits != digits[:, :1]).any(1)


@final
class Recall:
    """Associative recall: pairs such as `a K`, then `?` and one of the first letters, whose partner is the answer.

    The first letters of a sequence are all different, so there is one answer. Scores are split by the position of the
    queried pair.

    Args:
        trained: numbers of pairs to train on, at most 26; each batch has one of them.

    Raises:
        SettingError: If the number of pairs is missing or outside 1..26.
    """

    name: str = "recall"
    unit: str = "pairs"
    measure: str = "accuracy"
    identity: str = ""
    vocab_size: int = 53
    tokens: tuple[str, ...] = (*"abcdefghijklmnopqrstuvwxyz", *"ABCDEFGHIJKLMNOPQRSTUVWXYZ", "?")
    groups: tuple[str, ...] = ("first third", "middle third", "last third")

    def __init__(self, trained: Sequence[int] = (1, 2, 3, 4, 5, 6, 7, 8)) -> None:
        if not trained or not 1 <= min(trained) <= max(trained) <= 26:
            raise SettingError(f"recall has 1 to 26 pairs, one a letter, but trained={tuple(trained)}.")
        self.trained = self.tested_in_length = tuple(trained)
        self.shift_length = min(n for n in self.trained if 2 * n >= max(self.trained))

    def token_count(self, length: int) -> int:
        """Return 2 * length + 2: two letters a pair, the question mark and the queried letter."""
        return 2 * length + 2

    def sample(self, batch: int, generator: torch.Generator) -> Batch:
        """Sample sequences of one of the trained numbers of pairs; held-out ones have no target."""
        sampled = self._pairs(_one_of(self.trained, generator), batch, generator)
        return replace(sampled, targets=sampled.targets.masked_fill(held_out(sampled.ids), -100))

    def test_set(self, length: int, count: int) -> Batch:
        """Return held-out sequences."""
        if not 1 <= length <= 26:
            raise SettingError(f"recall has 1 to 26 pairs, one a letter, but got the length {length}: pass 1 to 26.")
        sampled = self._pairs(length, 20 * count, torch.Generator().manual_seed(8_880_000 + length))
        kept = held_out(sampled.ids).nonzero()[:count, 0]
        return Batch(sampled.ids[kept], sampled.targets[kept], sampled.groups[kept], sampled.at)

    def encode(self, text: str) -> tuple[list[int], list[str]]:
        """Return the ids and tokens of a text such as "aKcR?c": each letter is a token, white space is ignored."""
        tokens = [character for character in text if not character.isspace()]
        unknown = next((token for token in tokens if token not in self.tokens), None)
        if unknown is not None or not tokens:
            what = "the text is empty" if unknown is None else f"recall has no token {unknown!r}"
            raise TextError(f"{what}: write pairs of letters, a question mark and a letter, as in aKcR?c.")
        return [self.tokens.index(token) for token in tokens], tokens

    def answer(self, ids: Sequence[int]) -> int | None:
        """Return the id of the correct answer; None where the ids are not pairs, `?` and a letter of one pair."""
        firsts, seconds = ids[:-2:2], ids[1:-2:2]
        whole = len(firsts) == len(seconds) and len(ids) > 2 and ids[-2] == 52 and ids[-1] in firsts
        if not whole or len(set(firsts)) < len(firsts):
            return None
        return seconds[list(firsts).index(ids[-1])] if max(firsts) < 26 <= min(seconds) <= max(seconds) < 52 else None

    def baselines(self, length: int, test_set: Batch) -> Mapping[str, float]:
        """Return chance, and the best score of a reader who sees the letters, but not which follows which."""
        values = torch.nn.functional.one_hot(test_set.ids[:, 1 : 2 * length : 2] - 26, 26).sum(1)
        return {"chance": 1 / 26, "order-free ceiling": (values.amax(1) / length).mean().item()}

    def _pairs(self, length: int, count: int, generator: torch.Generator) -> Batch:
        firsts = torch.rand(count, 26, generator=generator).argsort(1)[:, :length]
        seconds = torch.randint(26, 52, (count, length), generator=generator)
        queried = torch.randint(0, length, (count, 1), generator=generator)
        pairs = torch.stack([firsts, seconds], dim=-1).flatten(1)
        ids = torch.cat([pairs, torch.full((count, 1), 52), firsts.gather(1, queried)], dim=1)
        return Batch(ids, seconds.gather(1, queried)[:, 0], (3 * queried[:, 0]) // length, -1)


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

    def most_tested(self, longest: int) -> int:
        """Return how many held-out tokens are for tests: a fifth or less is left to validation, if a window is."""
        held_out, window = len(self._text) - self._cut - 1, self.trained[0]
        left = min(VALIDATED, held_out // 5) // window * window + window
        return max(held_out - left, min(longest, held_out))

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
        self.tokens, self._tokenizer = shown_tokens(tokenized), None
        if tokenized is not None:
            self._tokenizer = unchanged_tokenizer(tokenized.tokenizer, tokenized.tokenizer_sha256)
            self.tokens = tuple(map(readable_token, self.tokens, shown_texts(self.tokens, self.tokens)))

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
