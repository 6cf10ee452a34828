"""Trim the vocabulary of a checkpoint to tokens by id or by a corpus, and those that these need."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import numpy as np

from whatwhere.errors import SettingError, TextError, TokenError
from whatwhere.long_work import counted
from whatwhere.models.checkpoint.base import Entry
from whatwhere.models.checkpoint.files import File
from whatwhere.models.checkpoint.safetensors import new_file, require_writable_output
from whatwhere.models.configuration.keys import Json
from whatwhere.models.surgery.report import CorpusCheck, Report, Trimmed
from whatwhere.models.surgery.resize import rearrange, with_rows
from whatwhere.models.surgery.selection import (
    CONFIGS,
    ids_in_configs,
    notes_on_missed,
    notes_on_other_files,
    notes_on_size,
    require_none_missed,
    require_one_vocabulary,
    vocabulary_tensors,
    with_stated_padding,
)
from whatwhere.models.surgery.source import Edits, Progress, Source, as_json
from whatwhere.models.surgery.tokenizer_json import STALE, built, ids_around, needed, trimmed
from whatwhere.what.text import encodings
from whatwhere.what.token_ids import padding_dependence, renumbered, token_ids

ID_MAP = "id_map.json"
_LINES = 4096
_MAX_IDS_BYTES = 200_000_000


@dataclass(frozen=True, eq=False)
class CorpusTokens:
    """The tokens of a corpus.

    Args:
        tokens: number of tokens.
        ids: distinct ids.
        unknown: number of unknown tokens.
        digest: hash of all ids in order.
    """

    tokens: int
    ids: frozenset[int]
    unknown: int
    digest: bytes


def trim_checkpoint(
    path: str | Path,
    out: str | Path,
    *,
    corpus: Sequence[str | Path] = (),
    keep_ids: Iterable[int] | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Write a checkpoint with fewer tokens, and its tokenizer and configuration with new ids.

    Kept are the requested ids, or those of the tokens in the corpus, and with them: ids in the configuration, added
    tokens, tokens that the tokenizer puts around a text, and the unknown token; the parts from which byte-pair merges
    build the kept tokens; the piece with the lowest score, by which Unigram scores unknown characters; and, if
    positions are counted from pad_token_id (as in RoBERTa), all ids up to it, so that positions keep their rows. Tokens
    keep their order, and `id_map.json` maps new to old ids. A text of kept tokens is encoded to the same tokens as
    before.

    Args:
        path, out, force, progress: as in `resize_checkpoint`.
        corpus: text files in UTF-8, which are encoded line by line; needs the tokenizer.

    Returns:
        The report, with the number of kept tokens and a check of the corpus.

    Raises:
        SettingError: If both of corpus and keep_ids are given, or neither.
        TokenError: If an id is out of range.
        TextError: If the corpus cannot be read, or is empty.
        CheckpointError: If the checkpoint cannot be changed, or the output cannot be written.
    """
    source, out = Source(path), Path(out)
    source.require_output(out, force)
    if bool(corpus) == (keep_ids is not None):
        raise SettingError("trim needs texts or ids.\nPass either --corpus FILE... or --keep-ids FILE.")
    require_one_vocabulary(source)
    tables = vocabulary_tensors(source.checkpoint)
    contents = None if isinstance(source.tokenizer, str) else source.tokenizer
    require_none_missed(source.checkpoint, tables)
    if contents is not None:
        built(contents)  # raises an error if it is no tokenizer
    rows = tables[0].shape[0]
    before = _encode_corpus(source, corpus) if corpus else None
    requested = set(before.ids) if before is not None else _checked(keep_ids or (), rows)
    ids = _with_required(source, contents, requested, rows)
    new_ids = {old: new for new, old in enumerate(ids)}
    edits = Edits(files=_files(source, contents, tables, new_ids, rows), notes=_notes(source, contents, tables))
    from whatwhere.what.resizing import Rearrangement

    measured = rearrange(source, Rearrangement.kept(rows, ids), tables, edits)
    check = None
    if before is not None:
        check = _check_corpus(before, corpus, json.loads(edits.files["tokenizer.json"] or b""), new_ids)
    id_map = as_json({"format": "whatwhere-id-map", "version": 1, "rows_before": rows, "old_ids": ids})
    if source.folder is not None:
        edits.files[ID_MAP] = id_map
        report = source.write("trim", out, edits, force, progress)
    else:
        map_file = out.with_suffix(f".{ID_MAP}")
        require_writable_output(map_file, [source.path], force)
        report = source.write("trim", out, edits, force, progress)
        with new_file(map_file, force) as unfinished:
            unfinished.write_bytes(id_map)
    saved = sum(source.checkpoint.entry(name).bytes - part.bytes for name, part in edits.parts.items())
    return replace(report, measured=Trimmed(rows, len(ids), len(requested), check, tuple(measured), saved))


def read_ids(path: str | Path) -> list[int]:
    """Read ids from a file: a list in JSON, or integers separated by spaces, commas or line breaks.

    Returns:
        The ids, in the order of the file.

    Raises:
        CheckpointError: If it cannot be read, or holds anything else.
    """
    file = File(path)
    if file.size > _MAX_IDS_BYTES:
        raise file.wrong(f"it has {file.size:,} bytes, but ids take at most {_MAX_IDS_BYTES:,}", "Pass another file.")
    text = file.head(file.size).decode("utf-8", "replace").strip()
    try:
        return [int(part) for part in text.strip("[]").replace(",", " ").split()]
    except ValueError:
        raise file.wrong("it holds more than whole numbers", "Write one id per line, or a list in JSON.") from None


def _lines(corpus: Sequence[str | Path], advance: Callable[[int], None]) -> Iterator[list[str]]:
    for path in corpus:
        File(path)  # raises an error for devices and pipes, which may never end
        read = 0
        try:
            with Path(path).open("rb") as file, TextIOWrapper(file, encoding="utf-8", newline="") as text:
                while lines := [line for _, line in zip(range(_LINES), text, strict=False)]:
                    yield lines
                    read, before = file.tell(), read
                    advance(read - before)
        except UnicodeDecodeError:
            raise TextError(f"{path} is not UTF-8.\nConvert it first: iconv -t UTF-8.") from None
        except OSError as problem:
            raise TextError(f"{path} cannot be read: {problem.strerror}.\nPass a file that you may read.") from None


def _encoded(tokenizer: Any, corpus: Sequence[str | Path], advance: Callable[[int], None]) -> Iterator[list[int]]:
    for lines in _lines(corpus, advance):
        for encoding in encodings(tokenizer, lines):
            yield encoding.ids


def _corpus_tokens(contents: Json, corpus: Sequence[str | Path], old: np.ndarray | None, step: str) -> CorpusTokens:
    """Encode a corpus; `old` maps ids to the ids that are hashed, and `step` names the work."""
    tokenizer, model = built(contents), contents["model"]
    unknown: Any = tokenizer.token_to_id(str(model["unk_token"])) if model.get("unk_token") else model.get("unk_id")
    count, unknown_count, digest = 0, 0, sha256()
    distinct: set[int] = set()
    with counted(step, sum(File(path).size for path in corpus), "bytes") as advance:
        for ids in _encoded(tokenizer, corpus, advance):
            count, unknown_count = count + len(ids), unknown_count + ids.count(unknown)
            distinct.update(ids)
            numbers = np.asarray(ids, dtype=np.int64)
            digest.update(np.append(numbers if old is None else old[numbers], -1).tobytes())
    return CorpusTokens(count, frozenset(distinct), unknown_count, digest.digest())


def _encode_corpus(source: Source, corpus: Sequence[str | Path]) -> CorpusTokens:
    contents = source.require_tokenizer(
        "the tokens of a text are not known", "Pass the folder of the model, or ids: --keep-ids FILE."
    )
    tokens = _corpus_tokens(contents, corpus, None, "encoding the corpus")
    if not tokens.tokens:
        raise TextError("the corpus holds no token.\nPass files with text.")
    return tokens


def _checked(ids: Iterable[int], rows: int) -> set[int]:
    distinct = set(ids)
    if not distinct:
        raise TokenError("there are no ids to keep.\nPass at least one.")
    if outside := [number for number in (min(distinct), max(distinct)) if not 0 <= number < rows]:
        raise TokenError(f"id {outside[0]} is outside the vocabulary, which has ids 0..{rows - 1}.")
    return distinct


def _with_required(source: Source, contents: Json | None, requested: set[int], rows: int) -> list[int]:
    """Return the requested ids, and all others that must be kept with them, in ascending order."""
    config = with_stated_padding(source) or {}
    stay = set(requested) | {number for ids in token_ids(config, rows).values() for number in ids}
    for keys in ids_in_configs(source, rows).values():
        stay |= {number for ids in keys.values() for number in ids}
        # Whisper counts timestamps from this token, and the one before it means silence.
        for first in keys.get("no_timestamps_token_id", ()):
            stay |= set(range(max(first - 1, 0), rows))
    padding = padding_dependence(config or source.checkpoint.config or {})
    if padding is not None:  # positions are counted from the padding id, which must not change
        stay |= set(range(min(padding[1] + 1, rows)))
    if contents is not None:
        stay = needed(contents, stay | ids_around(contents.get("post_processor")))
    if beyond := [number for number in stay if number >= rows]:
        raise TokenError(
            f"the tokenizer has the id {beyond[0]}, but the table only {rows} rows.\n"
            f"Add rows first: whatwhere resize --vocab-size {max(beyond) + 1}."
        )
    return sorted(stay)


def _files(
    source: Source, contents: Json | None, tables: Sequence[Entry], new_ids: Mapping[int, int], rows: int
) -> dict[str, bytes | None]:
    """Return the small files with new ids; None for files that are omitted because they would be outdated."""
    files: dict[str, bytes | None] = dict.fromkeys(STALE)
    if contents is not None:
        files["tokenizer.json"] = as_json(smaller := trimmed(contents, new_ids))
        built(smaller)  # raises an error if the library cannot read it
    for name in CONFIGS:
        config = source.json(name)
        if config is not None:
            stated = (with_stated_padding(source) or config) if name == "config.json" else config
            new: Json = renumbered(stated, rows, new_ids.get)
            new = with_rows(new, tables, rows, len(new_ids)) if name == "config.json" else new
            if new != config:
                files[name] = as_json(new)
    settings = source.json("tokenizer_config.json")
    if settings is not None and isinstance(settings.get("added_tokens_decoder"), dict):
        decoder = {
            str(new_ids[int(n)]): token
            for n, token in settings["added_tokens_decoder"].items()
            if n.isdecimal() and int(n) in new_ids
        }
        files["tokenizer_config.json"] = as_json({**settings, "added_tokens_decoder": decoder})
    return files


def _check_corpus(
    before: CorpusTokens, corpus: Sequence[str | Path], contents: Json, new_ids: Mapping[int, int]
) -> CorpusCheck:
    """Encode the corpus again with the trimmed tokenizer, and compare every token."""
    old = np.fromiter(new_ids, dtype=np.int64)
    after = _corpus_tokens(contents, corpus, old, "encoding the corpus again, by the trimmed tokenizer")
    return CorpusCheck(before.tokens, before.unknown, after.digest == before.digest)


def _notes(source: Source, contents: Json | None, tables: Sequence[Entry]) -> list[str]:
    notes = []
    if contents is None:
        notes.append(f"there is no tokenizer.json: renumber the tokens of yours by {ID_MAP}")
    notes += [*notes_on_other_files(source, tables[0].shape[0]), *_position_notes(source)]
    if source.folder is not None:
        notes += notes_on_size(source.checkpoint.config or {}, tables[0].shape[0])
    notes += notes_on_missed(source.checkpoint, tables)
    return notes


def _position_notes(source: Source) -> list[str]:
    """Return a note if positions may be counted from the padding id, but the model type is not known."""
    if source.checkpoint.position_table is None or source.checkpoint.position_offset is not None:
        return []
    if padding_dependence(source.checkpoint.config or {}) is not None:
        return []
    return [
        "the row of position 0 is not known for this model: if positions are counted from pad_token_id, as in RoBERTa, "
        "keep all ids up to it"
    ]
