"""Trim the vocabulary of a checkpoint to tokens by id or by a corpus, and those that these need."""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from hashlib import sha256
from io import TextIOWrapper
from pathlib import Path
from unicodedata import name as name_of

import numpy as np

from whatwhere.errors import SettingError, TextError, TokenError
from whatwhere.escape import quoted
from whatwhere.long_work import counted
from whatwhere.models.checkpoint.base import Entry
from whatwhere.models.checkpoint.files import File
from whatwhere.models.checkpoint.safetensors import new_file, require_writable_output
from whatwhere.models.checkpoint.tokenizer_files import built
from whatwhere.models.configuration.keys import Json
from whatwhere.surgery.changed_copy import ChangedCopy, as_json
from whatwhere.surgery.report import CorpusCheck, Report, Trimmed
from whatwhere.surgery.resize import rearrange
from whatwhere.surgery.selection import (
    change_added_tokens,
    checked_ids,
    configs_of,
    ids_in_configs,
    notes_on_vocabulary,
    vocabulary_tensors,
    with_rows,
)
from whatwhere.surgery.tokenizer_json import STALE, ids_of, needed, trimmed
from whatwhere.what.text import encodings
from whatwhere.what.token_ids import padding_dependence, renumbered

_ID_MAP = "id_map.json"
_LINES = 4096
_LEAST_LETTERS = 20  # letters that a first word of their names has where it is a script, and not a sign such as MICRO
_MAX_IDS_BYTES = 200_000_000


def trim_checkpoint(
    path: str | Path,
    out: str | Path,
    *,
    corpus: Sequence[str | Path] = (),
    keep_ids: Iterable[int] | None = None,
    scripts: Sequence[str] = (),
    force: bool = False,
) -> Report:
    """Write a checkpoint with fewer tokens, and its tokenizer and configuration with new ids.

    Kept are the requested ids, or those of the tokens in the corpus (text files in UTF-8, encoded line by line), or
    those whose letters are all of some scripts, such as latin and greek; and with them: ids in the configuration, added
    tokens, tokens that the tokenizer puts around a text, and the unknown token; the parts from which byte-pair merges
    build the kept tokens; the piece with the lowest score, by which Unigram scores unknown characters; and, if
    positions are counted from pad_token_id (as in RoBERTa), all ids up to it, so that positions keep their rows. Tokens
    keep their order, and `id_map.json` maps new to old ids. A text of kept tokens is encoded to the same ones.
    """
    from whatwhere.what.resizing import Rearrangement

    copy = ChangedCopy(path, out, force)
    if bool(corpus) + (keep_ids is not None) + bool(scripts) != 1:
        raise SettingError(
            "trim needs texts, ids or scripts.\nPass one of --corpus FILE..., --keep-ids FILE and --scripts latin,..."
        )
    tables = vocabulary_tensors(copy)
    rows = tables[0].shape[0]
    contents = None if isinstance(copy.tokenizer, str) else copy.tokenizer
    before: Counter[int] = Counter()
    digest = b""
    if keep_ids is None:
        contents = copy.require_tokenizer(
            "the tokens of a text are not known", "Pass the folder of the model, or ids: --keep-ids FILE."
        )
    if scripts:
        assert contents is not None
        keep_ids = ids_of_scripts(contents, scripts, rows)
    elif keep_ids is None:
        assert contents is not None
        same_ids = np.arange(max(ids_of(contents).values(), default=0) + 1)
        before, digest = _encoded(contents, corpus, same_ids, "encoding the corpus")
        if not before:
            raise TextError("the corpus holds no token.\nPass files with text.")
    elif contents is not None:
        built(contents)  # raises an error if it is not a tokenizer
    requested = set(before if keep_ids is None else checked_ids("trim", keep_ids, rows))
    ids = _with_required(copy, contents, requested, rows)
    new_ids = {old: new for new, old in enumerate(ids)}
    smaller = None if contents is None else trimmed(contents, new_ids)
    _write_files(copy, smaller, tables, new_ids)
    measured = rearrange(copy, Rearrangement.kept(rows, ids), tables)
    check = None
    if before and contents is not None and smaller is not None:
        step = "encoding the corpus again, by the trimmed tokenizer"
        same = _encoded(smaller, corpus, np.array(ids, np.int64), step)[1] == digest
        text, number = (contents["model"].get(key) for key in ("unk_token", "unk_id"))
        check = CorpusCheck(before.total(), before[ids_of(contents).get(str(text), -1) if text else number], same)
    id_map = as_json({"format": "whatwhere-id-map", "version": 1, "rows_before": rows, "old_ids": ids})
    saved = sum(copy.checkpoint.entry(name).bytes - part.bytes for name, part in copy.parts.items())

    def result() -> Trimmed:
        return Trimmed(rows, len(ids), len(requested), check, tuple(measured), saved)

    if copy.folder is not None:
        copy.files[_ID_MAP] = id_map
        return copy.write("trim", result)
    map_file = copy.out.with_suffix(f".{_ID_MAP}")
    require_writable_output(map_file, [copy.path], force)
    report = copy.write("trim", result)
    with new_file(map_file, force) as unfinished:
        unfinished.write_bytes(id_map)
    return report


def ids_of_scripts(contents: Json, scripts: Sequence[str], rows: int) -> list[int]:
    """Return the ids of tokens whose letters are all of some scripts; also those without letters, or of parts of one.

    The script of a letter is the first word of its name in Unicode: LATIN, CYRILLIC, CJK, ...
    """
    words = Counter(name_of(chr(n), "-").split()[0] for n in range(sys.maxunicode + 1) if chr(n).isalpha())
    known = {word for word, letters in words.items() if letters > _LEAST_LETTERS}  # not the SIGN of one alone
    chosen = {script.strip().upper() for script in scripts}
    if unknown := sorted(chosen - known):
        near = get_close_matches(unknown[0], known)
        hint = f"Did you mean {' or '.join(near).lower()}?" if near else "Han is called cjk."
        raise SettingError(f"trim knows no script {quoted(unknown[0].lower())}, such as latin or cyrillic.\n{hint}")
    others, tokenizer = known - chosen, built(contents)

    def fits(number: int) -> bool:
        text = tokenizer.decode([number], skip_special_tokens=False)
        return not any(name_of(char, "-").split()[0] in others for char in text if char.isalpha())

    return [number for number in range(min(rows, max(ids_of(contents).values()) + 1)) if fits(number)]


def read_ids(path: str | Path) -> list[int]:
    """Read ids from a file, in its order: a list in JSON, or integers separated by spaces, commas or line breaks."""
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


def _encoded(contents: Json, corpus: Sequence[str | Path], old: np.ndarray, step: str) -> tuple[Counter[int], bytes]:
    """Encode a corpus: how often each id occurs, and a hash of all in order, mapped to `old` ids."""
    tokenizer, counts, digest = built(contents), Counter[int](), sha256()
    with counted(step, sum(File(path).size for path in corpus), "bytes") as advance:
        for ids in (one.ids for lines in _lines(corpus, advance) for one in encodings(tokenizer, lines)):
            counts.update(ids)
            digest.update(np.append(old[np.asarray(ids, np.int64)], -1).tobytes())
    return counts, digest.digest()


def _with_required(copy: ChangedCopy, contents: Json | None, requested: set[int], rows: int) -> list[int]:
    """Return the requested ids, and all others that must be kept with them, in ascending order."""
    stay = set(requested)
    for keys in ids_in_configs(copy, rows).values():
        stay |= {number for ids in keys.values() for number in ids}
        # Whisper counts timestamps from this token, and the one before it means silence.
        for first in keys.get("no_timestamps_token_id", ()):
            stay |= set(range(max(first - 1, 0), rows))
    padding = padding_dependence(configs_of(copy).get("config.json") or copy.checkpoint.config or {})
    if padding is not None:  # positions are counted from the padding id, which must not change
        stay |= set(range(min(padding[1] + 1, rows)))
    if contents is not None:
        stay = needed(contents, stay)
    if beyond := [number for number in stay if number >= rows]:
        raise TokenError(
            f"the tokenizer has the id {beyond[0]}, but the table only {rows} rows.\n"
            f"Add rows first: whatwhere resize --vocab-size {max(beyond) + 1}."
        )
    return sorted(stay)


def _write_files(copy: ChangedCopy, contents: Json | None, tables: Sequence[Entry], new_ids: Mapping[int, int]) -> None:
    """Write the small files with new ids, omit those that would be outdated, and note what may be."""
    rows = tables[0].shape[0]
    copy.files = dict.fromkeys(STALE)
    if contents is None:
        copy.notes.append(f"there is no tokenizer.json: renumber the tokens of yours by {_ID_MAP}")
    else:
        built(contents)  # raises an error if the library cannot read it
        copy.files["tokenizer.json"] = as_json(contents)
    for name, config in configs_of(copy).items():
        new: Json = renumbered(config, rows, new_ids.get)
        new = with_rows(new, tables, rows, len(new_ids)) if name == "config.json" else new
        if new != copy.json(name):
            copy.files[name] = as_json(new)
    kept = {str(old): str(new) for old, new in new_ids.items()}
    change_added_tokens(copy, lambda decoder: {kept[n]: token for n, token in decoder.items() if n in kept})
    copy.notes += notes_on_vocabulary(copy, tables, renumbered=True)
    checkpoint = copy.checkpoint
    depends = padding_dependence(checkpoint.config or {}) is not None
    if checkpoint.position_table is not None and checkpoint.position_offset is None and not depends:
        copy.notes.append(
            "the row of position 0 is not known for this model: if positions are counted from pad_token_id, as in "
            "RoBERTa, keep all ids up to it"
        )
