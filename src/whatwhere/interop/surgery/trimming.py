"""Fewer tokens: those that are named, or that a text has, and what they and the tokenizer need."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from whatwhere.errors import CheckpointError, SettingError, TextError, TokenError
from whatwhere.interop.checkpoint.files import File
from whatwhere.interop.checkpoint.writing import Part, new_file, require_apart
from whatwhere.interop.surgery import finding
from whatwhere.interop.surgery.configs import not_renumbered, token_ids, with_token_ids, with_vocabulary
from whatwhere.interop.surgery.report import Changed, Report
from whatwhere.interop.surgery.resizing import rearrange
from whatwhere.interop.surgery.source import Edits, Source, Told, as_json
from whatwhere.interop.surgery.vocabulary import STALE, around, built, needed, trimmed

ID_MAP = "id_map.json"
_LINES = 4096
_LARGEST_IDS = 200_000_000


@dataclass(frozen=True, eq=False)
class Counted:
    """Say which tokens a text has.

    Args:
        tokens: how many, in all.
        ids: which, each once.
        unknown: how many were the tokenizer's unknown token.
        digest: of all of them in their order.
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
    progress: Told | None = None,
) -> Report:
    """Write a checkpoint without the tokens that are not needed, and its tokenizer and configuration with new ids.

    Kept are the ids that are named or that a text has; those that the configuration names, tokens that were added or
    are put around texts, the unknown token; and what byte-pair merges build the kept ones of. They keep their order,
    and `id_map.json` says which old id each new one was. A text in which only kept tokens occur is encoded as before.

    Args:
        path, out, force, progress: as in `resize_checkpoint`.
        corpus: text files in UTF-8, encoded line by line; needs tokenizer.json.
        keep_ids: ids.
    """
    source, out = Source(path), Path(out)
    source.require_output(out, force)
    if bool(corpus) == (keep_ids is not None):
        raise SettingError("trim needs texts or ids: give --corpus FILE... or --keep-ids FILE, one of them.")
    tables, said = finding.vocabulary(source.checkpoint), source.json("tokenizer.json")
    if said is not None:
        built(said)  # the library knows best whether it is a tokenizer
    rows = tables[0].shape[0]
    counted = _count(source, said, corpus) if corpus else None
    wanted = set(counted.ids) if counted is not None else _checked(keep_ids or (), rows)
    ids = _closed(source, said, wanted, rows)
    places = {old: new for new, old in enumerate(ids)}
    files = _files(source, said, places, rows)
    from whatwhere.what.surgery import Rearrangement

    parts: dict[str, Part] = {}
    changed: list[Changed] = []
    measured: dict[str, Any] = {"tokens before": rows, "tokens kept": len(ids), "of them asked for": len(wanted)}
    rearrange(source, Rearrangement.kept(rows, ids), tables, parts, changed, measured)
    if counted is not None and said is not None:
        measured |= _proved(counted, corpus, json.loads(files["tokenizer.json"] or b""), places)
    id_map = as_json({"format": "whatwhere-id-map", "version": 1, "rows_before": rows, "old_ids": ids})
    if source.folder is not None:
        files[ID_MAP] = id_map
        written = source.write(out, Edits(parts, files), force, progress)
    else:
        beside = out.with_suffix(f".{ID_MAP}")
        require_apart(beside, [source.path], force)
        written = source.write(out, Edits(parts), force, progress)
        with new_file(beside, force) as unfinished:
            unfinished.write_bytes(id_map)
    return Report(
        "trim", str(source.path), str(out), tuple(changed), written.kept, written.bytes, measured,
        tuple(_notes(source, said, tables)), written.left_out,
    )  # fmt: skip


def read_ids(path: str | Path) -> list[int]:
    """Read ids from a file: a list in JSON, or whole numbers between blanks, commas or line breaks."""
    file = File(path)
    if file.size > _LARGEST_IDS:
        raise file.wrong(f"it has {file.size:,} bytes, but ids take at most {_LARGEST_IDS:,}", "Pass another file.")
    text = file.head(file.size).decode("utf-8", "replace").strip()
    try:
        return [int(part) for part in text.strip("[]").replace(",", " ").split()]
    except ValueError:
        raise file.wrong("it holds more than whole numbers", "Write an id on each line, or a list in JSON.") from None


def _lines(corpus: Sequence[str | Path]) -> Iterator[list[str]]:
    for path in corpus:
        File(path)  # a device or a pipe may never end
        try:
            with Path(path).open(encoding="utf-8", newline="") as text:
                while some := [line for _, line in zip(range(_LINES), text, strict=False)]:
                    yield some
        except UnicodeDecodeError:
            raise TextError(f"{path} is not UTF-8.\nConvert it first: iconv -t UTF-8.") from None
        except OSError as problem:
            raise TextError(f"{path} cannot be read: {problem.strerror}.\nPass a file that you may read.") from None


def _encoded(tokenizer: Any, corpus: Sequence[str | Path]) -> Iterator[list[int]]:
    for lines in _lines(corpus):
        for found in tokenizer.encode_batch(lines, add_special_tokens=False):
            yield found.ids


def _counted(said: Mapping[str, Any], corpus: Sequence[str | Path], old: np.ndarray | None) -> Counted:
    """Encode a corpus; `old` gives the id that each was before."""
    tokenizer, model = built(said), said["model"]
    unknown: Any = tokenizer.token_to_id(str(model["unk_token"])) if model.get("unk_token") else model.get("unk_id")
    count, lost, digest = 0, 0, sha256()
    seen: set[int] = set()
    for ids in _encoded(tokenizer, corpus):
        count, lost = count + len(ids), lost + ids.count(unknown)
        seen.update(ids)
        numbers = np.asarray(ids, dtype=np.int64)
        digest.update(np.append(numbers if old is None else old[numbers], -1).tobytes())
    return Counted(count, frozenset(seen), lost, digest.digest())


def _count(source: Source, said: Mapping[str, Any] | None, corpus: Sequence[str | Path]) -> Counted:
    if said is None:
        raise CheckpointError(
            f"{source.path} has no tokenizer.json, so it is not known which tokens a text has.\n"
            "Pass the folder of the model, or ids: --keep-ids FILE."
        )
    found = _counted(said, corpus, None)
    if not found.tokens:
        raise TextError("the corpus holds no token.\nPass files with text.")
    return found


def _checked(ids: Iterable[int], rows: int) -> set[int]:
    found = set(ids)
    if not found:
        raise TokenError("there are no ids to keep.\nName at least one.")
    if outside := [number for number in (min(found), max(found)) if not 0 <= number < rows]:
        raise TokenError(f"id {outside[0]} is outside the vocabulary, which has ids 0..{rows - 1}.")
    return found


def _closed(source: Source, said: Mapping[str, Any] | None, wanted: set[int], rows: int) -> list[int]:
    """Add what must not go."""
    stay = set(wanted)
    for name in ("config.json", "generation_config.json"):
        stay |= {number for number in token_ids(source.json(name) or {}) if number < rows}
    if said is not None:
        stay = needed(said, stay | around(said.get("post_processor")))
    if beyond := [number for number in stay if number >= rows]:
        raise TokenError(
            f"the tokenizer has the id {beyond[0]}, for which the table of {rows} rows has none.\n"
            f"Give it one first: whatwhere resize --vocab-size {max(beyond) + 1}."
        )
    return sorted(stay)


def _files(
    source: Source, said: Mapping[str, Any] | None, places: Mapping[int, int], rows: int
) -> dict[str, bytes | None]:
    """Give the small files with new ids; what cannot be changed is left out."""
    files: dict[str, bytes | None] = dict.fromkeys(STALE)
    if said is not None:
        files["tokenizer.json"] = as_json(made := trimmed(said, places))
        built(made)
    for name in ("config.json", "generation_config.json"):
        config = source.json(name)
        if config is not None:
            inside = {number: number for number in token_ids(config) if number >= rows}
            new = with_vocabulary(with_token_ids(config, {**inside, **places}), rows, len(places))
            if new != config:
                files[name] = as_json(new)
    settings = source.json("tokenizer_config.json")
    if settings is not None and isinstance(settings.get("added_tokens_decoder"), dict):
        decoder = {
            str(places[int(n)]): token
            for n, token in settings["added_tokens_decoder"].items()
            if n.isdecimal() and int(n) in places
        }
        files["tokenizer_config.json"] = as_json({**settings, "added_tokens_decoder": decoder})
    return files


def _proved(
    counted: Counted, corpus: Sequence[str | Path], said: Mapping[str, Any], places: Mapping[int, int]
) -> dict[str, Any]:
    """Encode the corpus once more, by the trimmed tokenizer, and tell whether each token is the one that it was."""
    again = _counted(said, corpus, np.fromiter(places, dtype=np.int64))
    told = {"tokens of the corpus": counted.tokens, "of them unknown": counted.unknown}
    return {**told, "encoded as before": again.digest == counted.digest}


def _notes(source: Source, said: Mapping[str, Any] | None, tables: Sequence[Any]) -> list[str]:
    notes = []
    if said is None:
        notes.append(f"there is no tokenizer.json: number the tokens of yours anew, by {ID_MAP}")
    held = {name: not_renumbered(source.json(name) or {}) for name in ("config.json", "generation_config.json")}
    notes += [f"{', '.join(keys)} of {name} hold old ids" for name, keys in held.items() if keys]
    if others := finding.alike(source.checkpoint, tables):
        notes.append(f"as many rows have, and are left as they were: {', '.join(others[:4])}")
    return notes
