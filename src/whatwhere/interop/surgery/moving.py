"""A token table for another tokenizer: shared tokens copied, the others made of old ones."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from whatwhere.analysis.difference import Alignment, align, token_keys
from whatwhere.analysis.kinds import marking, texts
from whatwhere.errors import CheckpointError, SettingError
from whatwhere.interop.checkpoint.checkpoint import Checkpoint
from whatwhere.interop.checkpoint.files import File, read_json
from whatwhere.interop.checkpoint.tokens import LARGEST
from whatwhere.interop.checkpoint.writing import Part
from whatwhere.interop.surgery import finding
from whatwhere.interop.surgery.configs import token_ids, with_token_ids, with_vocabulary
from whatwhere.interop.surgery.report import Changed, Report
from whatwhere.interop.surgery.resizing import rearrange
from whatwhere.interop.surgery.source import Edits, Source, Told, as_json
from whatwhere.interop.surgery.vocabulary import STALE, built, ids_of

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from whatwhere.what.surgery.rows import Mixture

Method = Literal["subtokens", "omp"]
METHODS: tuple[Method, ...] = ("subtokens", "omp")
_SPARSE = 1 << 16
_BESIDE = ("tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")


def move_to_tokenizer(
    path: str | Path,
    out: str | Path,
    tokenizer: str | Path,
    *,
    method: Method = "subtokens",
    atoms: int = 64,
    force: bool = False,
    progress: Told | None = None,
) -> Report:
    """Write a checkpoint whose tokens are those of another tokenizer.

    A token that both have keeps its rows, to the bit; where the two mark words in different ways, tokens are compared
    by their text and by whether a word begins with it. Another becomes the mean of the rows of what the old tokenizer
    makes of its text; where that is nothing but the unknown token, the mean row. A model needs some training then.

    Args:
        path, out, force, progress: as in `resize_checkpoint`.
        tokenizer: a tokenizer.json, or a folder that holds one.
        method: `subtokens`, or `omp`: by orthogonal matching pursuit, see `whatwhere.what.surgery.pursue`; then the
            folder must hold a model, in whose token table the shared tokens are the atoms.
        atoms: of a sum, at most.
    """
    source, out, other = Source(path), Path(out), Path(tokenizer)
    source.require_output(out, force)
    if method not in METHODS:
        raise SettingError(f"convert got method={method!r}, but knows only: {', '.join(METHODS)}.")
    said = source.json("tokenizer.json")
    if said is None or source.folder is None:
        raise CheckpointError(f"{source.path} has no tokenizer.json, so its tokens are not known.\nPass a folder.")
    file = other / "tokenizer.json" if other.is_dir() else other
    theirs = read_json(file, LARGEST)
    built(theirs)
    old, new = _words(ids_of(said), source.path), _words(ids_of(theirs), file)
    shared = align(*token_keys(old, new))
    tables = finding.vocabulary(source.checkpoint)
    rows = tables[0].shape[0]
    inside = shared.first < rows
    shared = Alignment(shared.first[inside], shared.second[inside], shared.removed, shared.new)
    origin = np.full(len(new), -1, dtype=np.int64)
    origin[shared.second] = shared.first
    lacking = [n for n in np.flatnonzero(origin == -1).tolist() if new[n]]
    if method == "omp":
        mixtures = _pursued(other, shared, lacking, len(new), atoms)
    else:
        mixtures = _by_pieces(said, old, new, lacking, rows)
    from whatwhere.what.surgery import Rearrangement

    parts: dict[str, Part] = {}
    changed: list[Changed] = []
    made = {"subtokens": "means of sub-tokens", "omp": "sums by matching pursuit"}[method]
    drawn = len(new) - len(shared.first) - len(mixtures)
    measured: dict[str, Any] = {"tokens": len(new), "copied": len(shared.first), made: len(mixtures), "mean row": drawn}
    change = Rearrangement(origin, rows, mixtures, known=min(len(old), rows))
    rearrange(source, change, tables, parts, changed, measured)
    places = dict(zip(shared.first.tolist(), shared.second.tolist(), strict=True))
    files = _files(source, file, places, rows, len(new))
    written = source.write(out, Edits(parts, files), force, progress)
    notes = ("a model needs some training to read with another tokenizer",)
    return Report(
        "convert", str(source.path), str(out), tuple(changed), written.kept, written.bytes, measured, notes,
        written.left_out,
    )  # fmt: skip


def _words(known: Mapping[str, int], path: Path) -> list[str]:
    """Give tokens by id; "" where there is none."""
    last = max(known.values(), default=-1)
    if not 0 <= last < 16 * len(known) + _SPARSE:
        raise CheckpointError(
            f"{path} numbers {len(known):,} tokens up to {last:,}, more than a table should have.\nMake it anew."
        )
    words = [""] * (last + 1)
    for word, number in known.items():
        words[number] = word
    return words


def _by_pieces(
    said: Mapping[str, Any], old: Sequence[str], new: Sequence[str], lacking: Sequence[int], rows: int
) -> "dict[int, Mixture]":
    """Give what the old tokenizer makes of each text."""
    tokenizer = built(said)
    mixtures: dict[int, Mixture] = {}
    unknown = tokenizer.token_to_id(str(said["model"].get("unk_token")))
    how, before = marking(new), marking(old)
    written = texts(new, how)
    for n in lacking:
        text = written[n]
        text = text.decode("utf-8", "ignore") if isinstance(text, bytes) else text
        if how == "wordpiece" and before in ("bytes", "sentencepiece") and not new[n].startswith("##"):
            text = f" {text}"
        ids = [number for number in _shortest(tokenizer, text) if number != unknown and number < rows]
        if ids:
            mixtures[n] = (ids, [1 / len(ids)] * len(ids))
    return mixtures


def _shortest(tokenizer: "Tokenizer", text: str) -> list[int]:
    """Encode a text as it stands, or without its blank where a tokenizer puts one before each text by itself."""
    found = (tokenizer.encode(one, add_special_tokens=False).ids for one in (text, text.removeprefix(" ")))
    return min((ids for ids in found if ids), key=len, default=[])


def _pursued(other: Path, shared: Alignment, lacking: Sequence[int], size: int, atoms: int) -> "dict[int, Mixture]":
    """Write each token in the shared ones, by the other model's table."""
    import torch

    from whatwhere.what.surgery import pursue

    donor = Checkpoint.open(other) if other.is_dir() else None
    if donor is None or donor.token_table is None or donor.entry(donor.token_table).shape[0] < size:
        raise CheckpointError(
            f"{other} holds no token table for its {size:,} tokens, which matching pursuit writes them by.\n"
            "Pass the folder of a model that was trained with this tokenizer, or --method subtokens."
        )
    if not len(shared.first):
        raise CheckpointError("the two tokenizers share no token, so there is nothing to write others in.")
    table = torch.from_numpy(donor.array(donor.token_table))
    ids, weights = pursue(
        table[torch.from_numpy(shared.second)], table[torch.tensor(lacking, dtype=torch.int64)], atoms
    )
    origin = shared.first[ids.numpy()]
    return {n: (origin[k].tolist(), weights[k].tolist()) for k, n in enumerate(lacking)}


def _files(source: Source, tokenizer: Path, places: Mapping[int, int], rows: int, size: int) -> dict[str, bytes | None]:
    """Give the other tokenizer's files, and the configuration with the ids that special tokens have there."""
    folder = tokenizer.parent
    files: dict[str, bytes | None] = dict.fromkeys((*STALE, *_BESIDE))
    for name in (tokenizer.name, *_BESIDE):
        if (folder / name).is_file():
            file = File(folder / name)
            files["tokenizer.json" if name == tokenizer.name else name] = file.head(min(file.size, LARGEST))
    theirs = read_json(folder / "config.json", LARGEST) if (folder / "config.json").is_file() else {}
    for name in ("config.json", "generation_config.json"):
        config = source.json(name)
        if config is not None:
            beyond = {number: number for number in token_ids(config) if number >= rows}
            config = with_vocabulary(with_token_ids(config, {**beyond, **places}), rows, size)
            ids = {key: theirs[key] for key in config if key.endswith("_token_id") and theirs.get(key) is not None}
            files[name] = as_json({**config, **ids})
    return files
