"""One checkpoint, of whatever format: what it holds, read tensor by tensor."""

from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, final

import numpy as np

from whatwhere.errors import CheckpointError
from whatwhere.interop.checkpoint.contents import Contents, Entry, Rows, choose
from whatwhere.interop.checkpoint.files import File, shown
from whatwhere.interop.checkpoint.gguf_keys import PERMUTED
from whatwhere.interop.checkpoint.heads import is_tied
from whatwhere.interop.checkpoint.names import Names, find_names
from whatwhere.interop.checkpoint.offsets import offset_of
from whatwhere.interop.checkpoint.opening import open_contents
from whatwhere.interop.checkpoint.tokens import LARGEST

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from torch import Tensor

    from whatwhere.interop.huggingface import Description

Layout = Literal["interleaved", "half-split"]
LAYOUTS: tuple[Layout, ...] = ("interleaved", "half-split")
LAYOUT_KEY = "whatwhere.rotary_layout"
"""Key of a header's metadata: the layout of rotary pairs, where it is not that of the model type."""


@final
class Checkpoint:
    """Hold what a file or folder of a model says of itself, and read from it what is asked for.

    Opening reads headers. A tensor costs the size of the array that comes out, and a few MB where it is widened;
    rows cost theirs. Of text and of what is pressed the whole is passed over once. Nothing here imports torch but
    `tensor`, `description` and pickles. Nothing of a file is believed: lengths, places and shapes are compared with its
    size before anything is allocated, and what does not fit is a CheckpointError.

    Read are safetensors (one file, or shards with their index), Hugging Face folders, GGUF, word2vec (text and binary),
    GloVe, fastText .vec, .npy and .npz, the TSV pair of the Embedding Projector, folders of `whatwhere compare`, and
    pickles of PyTorch where `allow_pickle` is True.

    Attributes:
        path: as it was given.
        format: "safetensors", "folder", "gguf", "word2vec", "word2vec-binary", "glove", "fasttext", "npy", "npz",
            "projector", "results" or "pickle".
        config: the configuration in Hugging Face's words, or None.
        metadata: what else the header says: that of safetensors, the keys of GGUF, results.json.
        tensors: name -> Entry(name, shape, dtype, bytes, file).

    >>> from tempfile import mkdtemp
    >>> path = Path(mkdtemp(), "two.vec")
    >>> _ = path.write_text("2 3\\nking 1 2 3\\nqueen 4 5 6\\n")
    >>> checkpoint = Checkpoint.open(path)
    >>> checkpoint.token_table, checkpoint.words, checkpoint.array("vectors", rows=[1])
    ('vectors', ['king', 'queen'], array([[4., 5., 6.]], dtype=float32))
    """

    def __init__(self, path: Path, contents: Contents, *, part: str | None = None, like: str | None = None) -> None:
        self.path = path
        self.format = contents.format
        self.config = contents.config
        self.metadata = contents.metadata
        self.tensors: Mapping[str, Entry] = MappingProxyType(dict(contents.entries))
        self._contents, self._part, self._like = contents, part, like

    @classmethod
    def open(
        cls, path: str | Path, *, allow_pickle: bool = False, part: str | None = None, like: str | None = None
    ) -> "Checkpoint":
        """Open a file or folder.

        Args:
            path: of it.
            allow_pickle: read pickles too, through torch.load(weights_only=True, mmap=True). Pass True only where you
                trust the author.
            part, like: for `description`, as `from_huggingface` takes them.
        """
        try:
            contents = open_contents(path, allow_pickle)
        except OSError as problem:  # of folders; files are opened with the like
            raise CheckpointError(
                f"{path} cannot be read: {problem.strerror}.\nPass a folder that you may read."
            ) from None
        return cls(Path(path), contents, part=part, like=like)

    def array(self, name: str, rows: Rows = None) -> np.ndarray:
        """Read a tensor as NumPy's, or some of its rows.

        Half precision, bfloat16, float8 and what GGUF quantises come as float32, which holds each of them exactly;
        float32, float64 and whole numbers as they are. Scales that stand in other tensors are not multiplied in.

        Args:
            name: one of `tensors`.
            rows: a slice, or whole numbers in any order; None is all.
        """
        entry = self.entry(name)
        return self._contents.reader.array(name, choose(entry, rows))

    def tensor(self, name: str, rows: Rows = None) -> "Tensor":
        """Read a tensor as torch's, or some of its rows, in the stored type; as float32 what torch has no type for."""
        entry = self.entry(name)
        return self._contents.reader.tensor(name, choose(entry, rows))

    def entry(self, name: str) -> Entry:
        """Give what is known of a tensor, or raise CheckpointError with a near name."""
        if name not in self.tensors:
            near = get_close_matches(name, list(self.tensors)[:2000], n=1)
            hint = f"Did you mean {shown(near[0])}?" if near else f"It has {len(self.tensors):,}, listed in `tensors`."
            raise CheckpointError(f"{self.path} has no tensor {shown(name)}.\n{hint}")
        return self.tensors[name]

    @cached_property
    def words(self) -> list[str] | None:
        """The tokens as strings, by id, as their file writes them; None where there is none.

        There may be fewer than the token table has rows: vocabularies are padded. An id that no token has is "".
        """
        return self._contents.words()

    @cached_property
    def tokenizer(self) -> "Tokenizer | None":
        """The tokenizer of the folder, ready to encode; None where there is no tokenizer.json."""
        path = self._contents.tokenizer
        if path is None:
            return None
        from tokenizers import Tokenizer

        file = File(path)
        if file.size > LARGEST:
            raise file.wrong(f"it has {file.size:,} bytes, but a tokenizer has at most {LARGEST:,}", "Pass another.")
        try:
            return Tokenizer.from_str(file.head(file.size).decode("utf-8"))
        except BaseException as problem:  # the library is Rust, whose panics are no Exception
            if isinstance(problem, KeyboardInterrupt | SystemExit | MemoryError):
                raise
            raise file.wrong(f"the tokenizers library cannot read it: {str(problem)[:300]}", "Make it anew.") from None

    @cached_property
    def names(self) -> Names:
        """Which tensor is which, and whether the token table had to be guessed."""
        shapes = {name: entry.shape for name, entry in self.tensors.items()}
        table = self._contents.token_table
        found = find_names(shapes, None, table)
        if found.token_table is not None and not found.guessed:
            return found
        config = self.config or {}
        inner = config.get("text_config")
        size = config.get("vocab_size", inner.get("vocab_size") if isinstance(inner, dict) else None)
        words = self.words
        return find_names(shapes, len(words) if words else size if isinstance(size, int) else None, table)

    @property
    def token_table(self) -> str | None:
        """The name of the token table, or None."""
        return self.names.token_table

    @property
    def readout(self) -> str | None:
        """The name of what logits are read out with, where it is stored beside the token table."""
        return self.names.readout

    @property
    def position_table(self) -> str | None:
        """The name of the table of learned positions, or None."""
        return self.names.position_table

    @property
    def segment_table(self) -> str | None:
        """The name of the table of sentence kinds, or None."""
        return self.names.segment_table

    @cached_property
    def tied(self) -> bool | None:
        """Whether logits are read out with the token table; None where nothing tells."""
        return is_tied(self)

    @cached_property
    def position_offset(self) -> int | None:
        """How many rows of the position table stand before that of position 0: 2 in OPT, BART and RoBERTa.

        0 without a table, None where there is one of a model that is not known.
        """
        table = self.position_table
        return 0 if table is None else offset_of(self.config, self.format)

    @cached_property
    def description(self) -> "Description":
        """What the configuration says of tokens and positions; imports torch."""
        from whatwhere.interop.huggingface import from_huggingface

        if self.config is None:
            raise CheckpointError(
                f"{self.path} has no configuration that is known, so nothing says where its tokens stand.\n"
                "Put config.json beside the weights, or read it alone: whatwhere.from_huggingface(config)."
            )
        found = from_huggingface(self.config, part=self._part, like=self._like)
        if self.metadata.get("general.architecture") in PERMUTED:
            note = "GGUF holds the rows of queries and keys of this model so that neighbors make a pair"
            return _as_stored(found, True, f"{note} (interleaved=True)")
        layout = self.metadata.get(LAYOUT_KEY)
        if layout is None:
            return found
        if layout not in LAYOUTS:
            raise CheckpointError(
                f"{self.path} says in its header that {LAYOUT_KEY} is {shown(str(layout))}, but known are only: "
                f"{', '.join(LAYOUTS)}.\nWrite it again, or pass the configuration alone: whatwhere.read(config)."
            )
        return _as_stored(found, layout == "interleaved", f"the header says that rotary pairs are {layout}")

    def __repr__(self) -> str:
        """Show where it is, and how much it holds."""
        return f"Checkpoint({str(self.path)!r}, format={self.format!r}, {len(self.tensors):,} tensors)"


def _as_stored(found: "Description", interleaved: bool, note: str) -> "Description":
    """Say how pairs are stored, where that is not the model type's own way."""
    plans = tuple(
        None if plan is None else replace(plan, settings={**plan.settings, "interleaved": interleaved})
        for plan in found.query_key
    )
    return replace(found, query_key=plans, notes=(*found.notes, note))
