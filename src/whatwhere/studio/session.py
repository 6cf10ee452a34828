"""What the studio looks at: a checkpoint, the results of a comparison, or a small fresh table if nothing is given."""

import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, final

import numpy as np
from jaxtyping import Float, Int64

from whatwhere.analysis.inspection import SECTIONS, Inspection, examine
from whatwhere.analysis.nearest_neighbors import Search, norms
from whatwhere.analysis.subject import EXAMPLES_ON_PAGE, Progress, Subject, or_missing
from whatwhere.analysis.token_diagnostics import TokenDiagnostics, token_diagnostics
from whatwhere.atomic import open_bytes
from whatwhere.errors import SettingError, TextError
from whatwhere.escape import quoted
from whatwhere.models.checkpoint import Checkpoint
from whatwhere.models.checkpoint.base import Contents, InTorch
from whatwhere.models.checkpoint.folder import RESULTS
from whatwhere.models.checkpoint.lookup import Table, read_table, table_name
from whatwhere.models.model_text import Marking, marking, reader_of, scripts, texts, token_types
from whatwhere.records import Missing
from whatwhere.what.text import encodings

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from whatwhere.comparison.read import Comparison

Kind = Literal["checkpoint", "results", "training", "fresh"]
Which = Literal["input", "output"]
Value = TypeVar("Value")

FRESH_DIM, FRESH_SEED = 64, 0
INSPECTION_SEED = 0
LARGEST_CORPUS = 10_000_000  # characters of a corpus that are read, which takes seconds
_LINES = 4096
_SECTIONS_OF_RUN = ("sizes", "norms", "spectrum", "diagnostics")
"""Sections of a run of a comparison, which has no configuration: other views show its positions."""


# Each thread has its own: steps of an inspection go to the job that runs it.
_PROGRESS: ContextVar[Progress] = ContextVar("progress", default=lambda step: None)


@contextmanager
def _reporting(progress: Progress) -> Iterator[None]:
    before = _PROGRESS.set(progress)
    try:
        yield
    finally:
        _PROGRESS.reset(before)


@final
class Session:
    """A cache of what has been read or computed of what is open, of a corpus, and of a second checkpoint to compare.

    Every view uses the same session, from several threads; each value is computed once, when it is first needed.
    """

    def __init__(self, checkpoint: Checkpoint, corpus: "Corpus | None" = None, other: Checkpoint | None = None) -> None:
        self.checkpoint, self.corpus, self.other = checkpoint, corpus, other
        named: dict[str, Kind] = {"results": "results", "training": "training", "fresh": "fresh"}
        self.kind: Kind = named.get(checkpoint.format, "checkpoint")
        self._kept: dict[Hashable, Any] = {}
        self._locks: dict[Hashable, threading.RLock] = {}
        self._door = threading.Lock()

    @classmethod
    def open(
        cls,
        path: str | Path | None = None,
        other: str | Path | None = None,
        *,
        allow_pickle: bool = False,
        corpus: Path | None = None,
    ) -> "Session":
        """Open a file or folder that `whatwhere.read` knows, and another to compare it with; None is a fresh table."""
        checkpoint = fresh() if path is None else in_training(Path(path))
        if checkpoint is None:
            checkpoint = Checkpoint.open(str(path), allow_pickle=allow_pickle)
        second = None if other is None else Checkpoint.open(other, allow_pickle=allow_pickle)
        return cls(checkpoint, None if corpus is None else Corpus(corpus), second)

    def show_results(self) -> bool:
        """Go over to the results of the comparison that was training, if it has ended; return whether they are open."""
        path = self.checkpoint.path
        if self.kind == "training" and (path / RESULTS).is_file():
            results = Checkpoint.open(path)
            results.builds = self.checkpoint.builds
            self.__dict__ = vars(Session(results, self.corpus, self.other))  # at once, for other threads read it
        return self.kind == "results"

    def once(self, key: Hashable, make: Callable[[], Value], most: int | None = None) -> Value:
        """Return what the first caller makes for a key; of tuples with one first item the last `most` are kept."""
        with self._door:
            lock = self._locks.setdefault(key, threading.RLock())
        with lock:
            try:
                value: Value = self._kept[key] if key in self._kept else make()
            except BaseException:
                with self._door:  # keys that a client made up leave nothing behind
                    self._locks.pop(key, None)
                raise
            with self._door:
                self._kept.setdefault(key, value)
                if most is not None and isinstance(key, tuple):
                    same = [each for each in self._kept if isinstance(each, tuple) and each[0] == key[0]]
                    for old in same[:-most]:
                        del self._kept[old]
                        self._locks.pop(old, None)
            return value

    def kept(self, key: Hashable) -> Any:
        """Return what is kept under a key, or None if it has not been computed yet; never waits."""
        return self._kept.get(key)

    @property
    def name(self) -> str:
        """What to call it in a heading."""
        if self.kind == "fresh":
            return "a fresh table (no model loaded)"
        named = [self.checkpoint] if self.other is None else [self.checkpoint, self.other]
        if self.checkpoint.format == "memory":
            return self.checkpoint.path.name
        # Folders of models are often called "model", or by a hash.
        return " and ".join("/".join(each.path.resolve().parts[-2:]) for each in named)

    @property
    def results(self) -> "Comparison":
        """What the comparison has measured, checked; SettingError where what is open is none."""
        if self.kind != "results":
            raise SettingError(
                "what is open here is not a folder of a comparison.\nMake one with whatwhere compare, or whatwhere "
                "demo, and open it: whatwhere studio FOLDER."
            )
        from whatwhere.comparison.read import read_results

        return self.once("results", lambda: read_results(self.checkpoint.path))

    @property
    def words(self) -> list[str]:
        """The tokens by id, as the vocabulary writes them."""
        return self.once("words", lambda: self.checkpoint.words or [])

    @property
    def marking(self) -> Marking:
        """How the vocabulary marks the beginning of words."""
        return self.once("marking", lambda: marking(self.words))

    @property
    def texts(self) -> list[str | bytes]:
        """The text of each token, or its bytes."""
        return self.once("texts", lambda: texts(self.words, self.marking))

    @property
    def kinds(self) -> list[str]:
        """The token type of each token."""
        return self.once("kinds", lambda: token_types(self.words, self.marking))

    @property
    def scripts(self) -> list[str]:
        """The script of each token."""
        return self.once("scripts", lambda: scripts(self.words, self.marking))

    @property
    def tokenizer(self) -> "Tokenizer | None":
        """The tokenizer, which neither cuts nor pads."""
        return self.once("tokenizer", self._tokenizer)

    @cached_property
    def tables(self) -> tuple[Which, ...]:
        """Which tables of tokens there are: "input", and "output" where that is a table of its own."""
        names = self.checkpoint
        has: dict[Which, bool] = {
            "input": names.token_table is not None,
            "output": names.output_projection is not None and not names.tied,
        }
        return tuple(which for which, there in has.items() if there)

    @cached_property
    def runs(self) -> tuple[str, ...]:
        """The runs of a comparison, such as "rotary-0"; none of anything else."""
        return tuple(self.checkpoint.runs)

    @cached_property
    def run(self) -> str:
        """The run that views begin with: the first with positions that can be built, else the first; "" without any."""
        if not self.runs or self.kind != "results":
            return next(iter(self.runs), "")
        # Results of earlier versions say no scheme but in the name.
        placed = (each for each in self.results.runs if (each.base or each.scheme).partition("@")[0] != "none")
        positional = (Path(each.file).stem for each in placed if not each.own or self.checkpoint.builds)
        return next((run for run in positional if run in self.runs), self.runs[0])

    def of_run(self, name: str) -> "Session":
        """Return the session on the model of one run of a comparison, which is kept."""
        name = self.known_run(name)
        return self.once(("run", name), lambda: Session(self.checkpoint.run(name), self.corpus))

    def known_run(self, name: str) -> str:
        """Return the name of a run, "" being the one that views begin with; raise SettingError if there is none."""
        name = name or self.run
        if name not in self.runs:
            first = ", ".join(self.runs[:4]) or "none"
            raise SettingError(f"this comparison has no run {quoted(name)}. Its runs are: {first}, ....")
        return name

    def table(self, which: str = "input") -> Table:
        """Return a table of tokens, which is read at the first call; of a comparison, that of the run to begin with."""
        if self.runs:
            return self.of_run("").table(which)
        tensor = table_name(self.checkpoint, which)
        return self.once(("table", tensor), lambda: read_table(self.checkpoint, tensor))

    def search(self, which: str = "input", centered: bool = False) -> Search:
        """Return the search by cosine in a table."""
        table = self.table(which)
        return self.once(("search", table.name, centered), lambda: Search(table.weight, "cosine", centered))

    def norms(self, which: str = "input") -> Float[np.ndarray, " rows"]:
        """Return the norm of each row of a table."""
        table = self.table(which)
        return self.once(("norms", table.name), lambda: norms(table.weight))

    @property
    def subject(self) -> Subject:
        """The subject of inspections, on the table that is already read."""
        return self.once("subject", self._subject)

    def diagnostics(self, progress: Progress) -> TokenDiagnostics | Missing:
        """Return the diagnostics of the token table, or why there are none."""
        with _reporting(progress):
            return self.once("diagnostics", lambda: or_missing(token_diagnostics, self.subject))

    def inspection(self, progress: Progress) -> Inspection:
        """Return the inspection of what is open, of the sections that apply to it."""

        def make() -> Inspection:
            known = self.diagnostics(progress) if self.tables else None
            return examine(self.subject, _SECTIONS_OF_RUN if self.checkpoint.format == "run" else SECTIONS, known)

        with _reporting(progress):
            return self.once("inspection", make)

    def keep_inspection(self, inspection: Inspection) -> None:
        """Store an inspection that was computed before, so that no view computes it again."""
        self.once("inspection", lambda: inspection)
        known = inspection.diagnostics
        if inspection.seed == INSPECTION_SEED and known is not None:
            self.once("diagnostics", lambda: known)

    def warm(self) -> None:
        """Read what the first view needs."""
        if self.runs:
            self.of_run("").warm()
        elif self.tables:
            self.search()
            self.search(centered=True)
            _ = self.texts, self.kinds, self.tokenizer
        import_module("whatwhere.analysis.walkthrough")  # and with it torch, which takes a second or two

    def _subject(self) -> Subject:
        subject = Subject(self.checkpoint, INSPECTION_SEED, lambda step: _PROGRESS.get()(step), listed=EXAMPLES_ON_PAGE)
        # The cache of a cached property: one copy of the table in memory serves both.
        if self.tables and not len(self.table().broken) and self.table().weight.dtype.kind == "f":
            vars(subject)["table"] = self.table().weight
        if self.checkpoint.tokenizer is None and self.tokenizer is not None:
            vars(subject)["tokenizer"] = self.tokenizer  # a fresh table has no files, but a tokenizer
        return subject

    def _tokenizer(self) -> "Tokenizer | None":
        of_task = self.checkpoint.format in ("fresh", "run")  # whose tokenizer no file may hold
        return reader_of(self.checkpoint) if of_task else self.checkpoint.tokenizer


def fresh() -> Checkpoint:
    """Return the 20 tokens of the tutorial's expressions with vectors that nothing has trained: N(0, 1), seed 0."""
    import torch

    from whatwhere.what.expressions import EXPRESSION_TOKENS

    rng = np.random.default_rng(FRESH_SEED)
    weight = rng.standard_normal((len(EXPRESSION_TOKENS), FRESH_DIM)).astype(np.float32)
    entry = InTorch.of("tokens.weight", torch.from_numpy(weight), Path("fresh"))
    words = list(EXPRESSION_TOKENS)
    return Checkpoint(entry.file, Contents("fresh", {entry.name: entry}, lambda: words, token_table=entry.name))


def in_training(folder: Path) -> Checkpoint | None:
    """Return a comparison that has no results yet, as a checkpoint without tensors; None for anything else."""
    if (folder / RESULTS).exists() or not (folder / "comparison.json").is_file():
        return None
    return Checkpoint(folder, Contents("training", {}))


@final
class Corpus:
    """A text file in UTF-8 whose tokens are counted."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.whole = True
        try:
            with TextIOWrapper(open_bytes(path), encoding="utf-8") as file:
                self._text = file.read(LARGEST_CORPUS)
                self.whole = not file.read(1)
        except UnicodeDecodeError:
            raise TextError(f"{path} is not UTF-8.\nConvert it: iconv -f ... -t utf-8.") from None
        except OSError as problem:
            raise TextError(f"{path} cannot be read: {problem.strerror}.") from None
        if not self._text:
            raise TextError(f"{path} is empty, but needs text.\nCheck the path.")

    def counts(self, tokenizer: "Tokenizer", rows: int) -> Int64[np.ndarray, " rows"]:
        """Return how often each token id occurs in the text, encoded line by line without special tokens."""
        lines = self._text.splitlines(keepends=True)
        counts = np.zeros(rows, np.int64)
        for first in range(0, len(lines), _LINES):
            for code in encodings(tokenizer, lines[first : first + _LINES]):
                ids = np.array(code.ids, np.int64)
                counts += np.bincount(ids[ids < rows], minlength=rows)
        return counts
