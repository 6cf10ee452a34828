"""Checkpoints of any format: the format is detected, headers are read on opening, tensors on request."""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from functools import cached_property
from math import prod
from os.path import isdir
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, final

import numpy as np

from whatwhere.errors import CheckpointError, MissingExtra, SettingError, WhatWhereError
from whatwhere.escape import quoted
from whatwhere.large_arrays import row_blocks, rows_at_a_time
from whatwhere.models.checkpoint.base import Combined, Contents, Entry, Rows, checked_rows
from whatwhere.models.checkpoint.combined import (
    MERGE,
    PASS_BASE,
    adapted,
    adapter_settings,
    model2vec,
    quantized,
    stated_base,
)
from whatwhere.models.checkpoint.folder import CONFIG, RESULTS_FORMAT, TABLE, open_configuration, open_contents
from whatwhere.models.checkpoint.gguf_architectures import ARCHITECTURES, IN_A_HEADER, why_unread
from whatwhere.models.checkpoint.hub import locate
from whatwhere.models.checkpoint.names import Names, TokenTable, find_names, find_token_tables, has_head, stated_tie
from whatwhere.models.configuration.description import Description
from whatwhere.models.configuration.keys import Json
from whatwhere.models.configuration.model_types import learned_offset, module_of, nested_text
from whatwhere.models.configuration.read import read_configuration
from whatwhere.what.token_ids import has_two_vocabularies

if TYPE_CHECKING:
    import torch
    from tokenizers import Tokenizer
    from torch import Tensor

    from whatwhere.where.binding import Where
    from whatwhere.where.catalogue import Build

Layout = Literal["interleaved", "half"]
LAYOUTS: tuple[Layout, ...] = ("interleaved", "half")
LAYOUT_KEY = "whatwhere.rotary_layout"
"""Key of a header's metadata: the layout of rotary pairs, if it is not that of the model type."""
_FORMATS = ("safetensors", "folder", "pickle")  # those in which a tensor may be stored in parts


@final
class Checkpoint:
    """A model in a file or folder of any format: headers are read on opening, tensors on request.

    Reading takes the memory of the returned rows, and a few MB to widen them; text is scanned as a whole once, and an
    array of .npz is read as a whole. Names and words take at most 4 times the size of the files and 64 MiB (40 times
    that of a tokenizer's JSON); a file of so many tiny entries that it would take more is refused. Only `tensor`, 8-bit
    floats and pickles import torch. Files are not trusted: lengths, offsets and shapes are compared with the size of
    the file before anything is allocated, and raise CheckpointError if they do not fit.

    Supported are safetensors (one file, or shards with their index), Hugging Face folders, GGUF, word2vec (text and
    binary), GloVe, fastText .vec, .npy and .npz, the TSV pair of the Embedding Projector, folders of
    `whatwhere compare`, and pickles of PyTorch where `allow_pickle` is True.

    Attributes:
        path: of the file or folder.
        format: "safetensors", "folder", "gguf", "word2vec", "word2vec-binary", "glove", "fasttext", "npy", "npz",
            "projector", "results", "run", "configuration" or "pickle".
        config: the configuration, with the keys of Hugging Face, or None.
        metadata: the rest of the header: metadata of safetensors, keys of GGUF, results.json of a comparison.
        tensors: name -> Entry(name, shape, dtype, bytes, file); one that is stored in parts has one entry.
        adapter: "an adapter of" and the name of its base, for an adapter of PEFT; "" for a model.
        base: the folder of the base on which an adapter is read; None where that is not known.
        module: of several in the files the one that is read, such as "thinker" or "decoder"; "" for all.
        builds: to be set for a comparison of schemes of your own, which files do not run: their functions, by name.

    Examples:
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
        self.tensors: Mapping[str, Entry] = MappingProxyType(contents.entries)
        self.adapter = contents.adapter
        self.base: Path | None = None
        self.builds: Mapping[str, Build] = {}
        two = has_two_vocabularies(contents.config or {})
        if two and part == "decoder":
            why = "the tokenizer of this folder is of the encoder's vocabulary"
            contents = replace(contents, words=lambda: None, tokenizer=lambda: why)
        self._contents, self._part, self._like = contents, part or ("encoder" if two else None), like
        self.module = module_of(self.config or {}, self._part) or (self._part if two and self._part else "")

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        base: str | Path | None = None,
        allow_pickle: bool = False,
        part: str | None = None,
        like: str | None = None,
    ) -> "Checkpoint":
        """Open a file or folder.

        Args:
            path: of a file or folder, or a name at huggingface.co, such as openai-community/gpt2@main.
            base: of an adapter of PEFT: its base, likewise. None is the one that its configuration states, where that
                is a folder here, in the cache of Hugging Face, or beside it; "" opens the adapter alone.
            allow_pickle: read pickles too, by torch.load(weights_only=True, mmap=True). Pass True only if you trust the
                author.
            part, like: of the `description`, as in `from_huggingface`; of a model of two vocabularies None is the
                encoder, whose tokenizer and token table read a text.

        Returns:
            The checkpoint; no tensor has been read.

        Raises:
            CheckpointError: If it cannot be read, is damaged, or its format is not supported; or it is a pickle, and
                `allow_pickle` is not set; or it is not an adapter of the base.
        """
        below: Checkpoint | None = None
        try:
            path = locate(path)
            contents = open_contents(path, allow_pickle)
            if contents.format in _FORMATS:
                contents = model2vec(quantized(contents))
                if (settings := adapter_settings(contents, path)) is not None:
                    own: Iterable[str | Path] = [base] if base else []
                    for at in _bases_beside(path, settings) if base is None else own:
                        with suppress(*(() if base else (CheckpointError,))):  # the user named no folder
                            found = cls.open(at, base="", allow_pickle=allow_pickle)
                            contents, below = adapted(contents, settings, *found._as_base()), found
                            break
                    else:
                        contents = adapted(contents, settings)
            if base and not contents.adapter:
                raise CheckpointError(f"{path} is a model, not an adapter, so it has no base.\nLeave the base out.")
        except OSError as problem:  # of folders; File raises CheckpointError by itself
            raise CheckpointError(
                f"{path} cannot be read: {problem.strerror}.\nPass a folder that you may read."
            ) from None
        opened = cls(path, contents, part=part, like=like)
        opened.base = None if below is None else below.path
        return opened

    def _as_base(self) -> tuple[Contents, str | None]:
        """Return what an adapter is read on: the contents, and the table that is the output projection too."""
        if self.adapter or self.format not in _FORMATS:
            what = self.adapter or f"{self.format}, whose names of tensors are others"
            raise CheckpointError(f"{self.path} is {what}, so no adapter can be read on it.\n{MERGE}")
        return self._contents, self.token_table if self.output_projection is None and self.tied else None

    @classmethod
    def of_configuration(cls, path: str | Path) -> "Checkpoint":
        """Open a configuration without weights: it has a description, and no tensors."""
        path = locate(path)
        return cls(path, open_configuration(path / CONFIG if path.is_dir() else path))

    @property
    def runs(self) -> list[str]:
        """The names of a comparison's runs, such as "rotary-0"; none of any other checkpoint."""
        end = f"/{TABLE}"
        return [name.removesuffix(end) for name in self.tensors if name.endswith(end) and self.format == RESULTS_FORMAT]

    def run(self, name: str) -> "Checkpoint":
        """Return the model of one run of a comparison, such as "rotary-0", with the names of its own tensors.

        Raises:
            CheckpointError: If there is no such run.
        """
        begin = f"{name}/"
        own = {entry.removeprefix(begin): entry for entry in self.tensors if entry.startswith(begin)}
        if self.format != RESULTS_FORMAT or not own:
            raise CheckpointError(
                f"{self.path} has no run {quoted(name)}.\nPass the folder of a comparison, and its run."
            )
        entries = {short: replace(self.tensors[full], name=short) for short, full in own.items()}
        table, words = next((short for short in own if short.endswith(TABLE)), None), self.words
        contents = replace(self._contents, format="run", entries=entries, words=lambda: words, token_table=table)
        checkpoint = Checkpoint(self.path / name, contents)
        checkpoint.builds = self.builds
        return checkpoint

    def model(self, prefix: str | None) -> "Checkpoint":
        """Return the model whose names begin with one of `names.models`; None is the whole, or the one that is meant.

        Raises:
            SettingError: If there is no such model, or names do not show which one is meant.
        """
        known = self.names.models
        if prefix not in known and (prefix is not None or self.names.undecided):
            raise SettingError(
                f"{self.path} has {len(known)} models, each with tables of its own: {', '.join(known[:8])}.\n"
                f"Name one, as in --run {known[0]}, or run={known[0]!r} in Python; or a table by its full name."
            )
        if prefix is None:
            return self
        others = tuple(f"{each}." for each in known if each != prefix)  # what no model's names have is of each
        entries = {n: e for n, e in self.tensors.items() if n.startswith(f"{prefix}.") or not n.startswith(others)}
        part = last if self._part and (last := prefix.rpartition(".")[2]) in ("encoder", "decoder") else self._part
        return Checkpoint(self.path, replace(self._contents, entries=entries), part=part, like=self._like)

    def array(self, name: str | None, rows: Rows = None) -> np.ndarray:
        """Read a tensor, or some of its rows, as a NumPy array.

        Half precision, bfloat16, float8 and the quantized types of GGUF are widened to float32, which is exact. Other
        types are kept. A tensor that is stored in parts is computed from them in float32: MLX's codes, numbers of 8
        bits with a scale, a base and an adapter of PEFT, the mapping of model2vec.

        Args:
            name: one of `tensors`; None, as `token_table` may be, is an error.
            rows: a slice, or integers in any order; None is all.

        Returns:
            A new array.

        Raises:
            CheckpointError: If there is no such tensor, the file is damaged, or it has codes of another quantization.
            TokenError: If a row is out of range.
            MissingExtra: If the type needs a package that is not installed.
        """
        entry = self.entry(name)
        return entry.array(checked_rows(entry, rows))

    def tensor(self, name: str | None, rows: Rows = None) -> "Tensor":
        """Read what `array` reads as a torch tensor of the stored type; float32 if torch does not have it."""
        entry = self.entry(name)
        return entry.tensor(checked_rows(entry, rows))

    def entry(self, name: str | None) -> Entry:
        """Return the name, shape, type and size of a tensor.

        Raises:
            CheckpointError: If there is no such tensor; the message suggests a similar name.
        """
        if name is None:
            raise CheckpointError(f"{self.path} has no such table: its name is None.\nName a tensor, of `tensors`.")
        if name not in self.tensors:
            similar = get_close_matches(name, list(self.tensors)[:2000], n=1)
            hint = f"Did you mean {quoted(similar[0])}?" if similar else f"`tensors` lists all {len(self.tensors):,}."
            raise CheckpointError(f"{self.path} has no tensor {quoted(name)}.\n{hint}")
        return self.tensors[name]

    def why_unread(self, name: str) -> str | None:
        """Return why rows of a tensor are not known, as a sentence that begins behind its name; None if they are."""
        entry = self.entry(name)
        if isinstance(entry, Combined):
            return entry.why if entry.rows is None else None
        # An array in a file of its own holds what it holds; in a model, whole numbers are codes or ids.
        whole = ("int" in entry.dtype or entry.dtype == "bool") and self.format not in ("npy", "npz")
        return f"holds {entry.dtype}, codes or ids rather than rows" if whole else None

    def parameters(self, name: str) -> int:
        """Return how many numbers a tensor holds that are learned, those that its rows share once."""
        learned = getattr(self.entry(name), "parameters", None)
        return prod(self.entry(name).shape) if learned is None else learned

    def require_stored(self, names: Iterable[str]) -> None:
        """Raise CheckpointError if a tensor is stored in parts, which would have to be changed together."""
        for name in names:
            if isinstance(entry := self.tensors.get(name), Combined):
                raise entry.refused()

    def without_table(self, way_out: str) -> CheckpointError:
        """Return the error that no token table was found; of an adapter it names the base."""
        if not self.adapter:
            return CheckpointError(f"{self.path} has no tensor that is known as a token table.\n{way_out}")
        return CheckpointError(f"{self.path} is {self.adapter}, whose tables are not in it.\n{PASS_BASE}")

    @cached_property
    def words(self) -> list[str] | None:
        """The tokens by id, as the tokenizer's file writes them; None without one.

        There may be fewer tokens than rows of the token table, because vocabularies are padded. An unused id is "".
        """
        return self._contents.words()

    @property
    def tokenizer(self) -> "Tokenizer | None":
        """The tokenizer of the folder, of tokenizer.json or of older files; None without one.

        It reads texts as the model does after training: BPE dropout is off, and nothing is cut or padded.
        """
        return None if isinstance(self._tokenizer, str) else self._tokenizer

    @property
    def why_no_tokenizer(self) -> str | None:
        """Why there is no tokenizer, in words; None where there is one."""
        return self._tokenizer if isinstance(self._tokenizer, str) else None

    @cached_property
    def _tokenizer(self) -> "Tokenizer | str":
        return self._contents.tokenizer()

    @cached_property
    def names(self) -> Names:
        """The names of the tables of the input layer, and whether that of the token table is a guess."""
        shapes = {name: entry.shape for name, entry in self.tensors.items() if len(entry.shape) == 2}
        table = self._contents.token_table
        names = find_names(shapes, None, table, self.module)
        if names.token_table is not None and not names.guessed:
            return names
        if self.adapter:  # of whose changes none is a table
            return Names()
        config = self.config or {}
        size = config.get("vocab_size", nested_text(config)[1].get("vocab_size"))
        words = self.words
        return find_names(shapes, len(words) if words else size if isinstance(size, int) else None, table)

    @property
    def token_table(self) -> str | None:
        """The name of the token table, or None."""
        return self.names.token_table

    @property
    def output_projection(self) -> str | None:
        """The name of the output projection (`lm_head`), if it is stored separately from the token table."""
        return self.names.output_projection

    @property
    def position_table(self) -> str | None:
        """The name of the position table, or None; of an encoder and a decoder that of the part that is read."""
        names = self.names
        return names.encoder_positions or names.position_table if self._part == "encoder" else names.position_table

    @property
    def segment_table(self) -> str | None:
        """The name of the table of segments (token types), or None."""
        return self.names.segment_table

    @cached_property
    def token_tables(self) -> tuple[TokenTable, ...]:
        """The tables that token ids select beside the token table; `whatwhere.load_token_table` loads one."""
        return find_token_tables(self.tensors, self.token_table)

    @cached_property
    def tied(self) -> bool | None:
        """Whether the output projection is the token table; None if unknown.

        A separate output projection is compared with the table: equal copies, as some libraries write them, are tied.
        Without one the configuration determines it.
        """
        table, output = self.token_table, self.output_projection
        if table is None:
            return None
        if output is not None:
            return self._equal(table, output)
        if self.format == "gguf":
            return True
        if not (self.describes_table and self.names.has_output):
            return None
        config = self.config or {}
        stated = has_head(config) if (stated := stated_tie(config)) is None else stated
        return None if self._tied_by_configuration is False else stated or None

    @cached_property
    def contradicts_tie(self) -> bool:
        """Whether the file contradicts tie_word_embeddings of its configuration.

        It does where two tables that should be one differ, where two that should differ are equal, and where the class
        of the model has an output projection of its own and the file has none.
        """
        described = self._tied_by_configuration
        if described is None or self.token_table is None:
            return False
        if self.output_projection is None:
            return not described and has_head(self.config or {})
        # Two tables that are equal contradict what is stated, but not what a type does otherwise.
        stated = not self.tied or stated_tie(self.config or {}) is not None
        return self.tied is not None and self.tied != described and stated

    @cached_property
    def _tied_by_configuration(self) -> bool | None:
        """Whether the configuration or its type ties the tables, if its code can; None if unknown, and in GGUF."""
        if self.config is None or self.format == "gguf" or not (self.describes_table and self.names.has_output):
            return None
        try:
            return self.description.tied
        except WhatWhereError:  # a model type that is not known or not supported
            return stated_tie(self.config)

    @cached_property
    def describes_table(self) -> bool:
        """Whether the configuration that is read is of the model that has the token table, not of another beside it."""
        if self.token_table is None or self.module:
            return self.token_table is None or f".{self.module}." in f".{self.token_table}"
        rows, dim = self.entry(self.token_table).shape
        parts = [part for part in (self.config or {}).values() if isinstance(part, Mapping)]
        own = [part.get("hidden_size", part.get("d_model")) for part in parts if part.get("vocab_size") == rows]
        with suppress(WhatWhereError):  # a model type that is not known or not supported
            return dim not in own or self.description.vocab_size == rows
        return True

    @cached_property
    def position_offset(self) -> int | None:
        """The row of position 0 in the position table: 2 in OPT, BART and RoBERTa.

        0 without a table; None if the model type is not known.
        """
        if self.position_table is None:
            return 0
        if self.config is None or self.format == "gguf":  # whose converter removes these rows
            return None if self.config is None or "model_type" not in self.config else 0
        own = self.config.get(self.module)
        return learned_offset(own if isinstance(own, Mapping) else self.config)

    def wheres(self, device: "torch.device | str | None" = None, dtype: "torch.dtype | None" = None) -> "list[Where]":
        """Build one Where for each layer from the configuration, as `description.wheres` does; learned tables are new.

        `whatwhere.load_where` builds one layer's with the learned tables of the files.
        """
        return self.description.wheres(device, dtype)

    @cached_property
    def description(self) -> Description:
        """The tokens and positions that the configuration describes.

        Raises:
            CheckpointError: If there is no configuration, or the layout of rotary pairs in the header is unknown.
            SettingError: If a value cannot be read, or contradicts another.
        """
        if self.config is None:
            why = why_unread(self.metadata)
            raise CheckpointError(
                f"{self.path} has no configuration that is known, so its positional encoding is unknown"
                f"{'' if why is None else f': {why}'}.\n"
                "Put config.json beside the weights, or read it alone: whatwhere.from_huggingface(config)."
            )
        architecture = ARCHITECTURES.get(str(self.metadata.get("general.architecture")))
        part = self._part if architecture is None or self._part is not None else architecture.part
        description = read_configuration(self.config, part, self._like, None if architecture is None else IN_A_HEADER)
        rotated = {bool(plan.settings["interleaved"]) for plan in description.query_key if plan is not None}
        if (layout := self.metadata.get(LAYOUT_KEY)) in LAYOUTS:
            note = f"the header states {layout} rotary pairs"
        elif layout is not None:
            raise CheckpointError(
                f"the header of {self.path} has {LAYOUT_KEY}={quoted(str(layout))}, but the known layouts are "
                f"{', '.join(LAYOUTS)}.\nWrite it again, or pass the configuration alone: whatwhere.read(config)."
            )
        elif architecture is not None and rotated - {architecture.pairs == "interleaved"}:
            layout, note = architecture.pairs, "queries and keys of this GGUF file have pairs of "
            note += "neighbors (interleaved=True)" if layout == "interleaved" else "the two halves (interleaved=False)"
        else:
            return description
        plans = tuple(
            plan and replace(plan, settings={**plan.settings, "interleaved": layout == "interleaved"})
            for plan in description.query_key
        )
        return replace(description, query_key=plans, notes=(*description.notes, note))

    def __repr__(self) -> str:
        return f"Checkpoint({str(self.path)!r}, format={self.format!r}, {len(self.tensors):,} tensors)"

    def _equal(self, table: str, output: str) -> bool | None:
        one, other = self.entry(table), self.entry(output)
        if one.shape != other.shape:
            return False
        if self.why_unread(table) or self.why_unread(output):
            return None
        step = rows_at_a_time(one.shape[1]) if self.format != "npz" else one.shape[0]  # compressed as a whole
        try:
            return all(
                np.array_equal(self.array(table, part), self.array(output, part), equal_nan=True)
                for part in row_blocks(one.shape[0], max(step, 1))
            )
        except MissingExtra:
            return None


def _bases_beside(path: Path, settings: Json) -> Iterator[Path]:
    """Yield folders that may be the base that an adapter states, to which a file sends no request by naming one."""
    stated, revision = stated_base(settings), settings.get("revision")
    if not stated or re.match(r"[/\\]{2}", stated):  # which Windows asks of the network
        return
    folder = path.absolute() if path.is_dir() else path.absolute().parent
    places = [Path(stated), folder / stated]
    with suppress(OSError):  # it cannot be looked at, which isdir does not raise
        places.append(locate(f"{stated}@{revision}" if revision else stated, online=False))
    places += [folder.parent / name for name in Path(stated).parts[-1:] if name != ".."]
    yield from (each for each in places if isdir(each) and not each.samefile(folder))  # noqa: PTH112
