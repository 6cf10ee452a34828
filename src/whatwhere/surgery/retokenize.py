"""Adapt a checkpoint to another tokenizer: rows of shared tokens are copied, others are sums of old rows."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from whatwhere.analysis.table_difference import Alignment, align, token_keys
from whatwhere.checks import require_choice
from whatwhere.errors import CheckpointError
from whatwhere.long_work import begin_step, counted
from whatwhere.models.checkpoint.base import Entry
from whatwhere.models.checkpoint.checkpoint import Checkpoint
from whatwhere.models.checkpoint.files import File
from whatwhere.models.checkpoint.tokenizer_files import (
    MAX_TOKENIZER_BYTES,
    TOKENIZER,
    built,
    by_id,
    optional_json,
    read_tokenizer,
    tokenizer_json_in,
)
from whatwhere.models.configuration.keys import Json
from whatwhere.models.model_text import marking, texts
from whatwhere.surgery.changed_copy import ChangedCopy, as_json
from whatwhere.surgery.report import Report, Retokenized
from whatwhere.surgery.resize import rearrange
from whatwhere.surgery.selection import (
    configs_of,
    notes_on_vocabulary,
    position_tensors_after_padding,
    recompute_buffers,
    vocabulary_tensors,
    with_position_count,
    with_rows,
)
from whatwhere.surgery.tokenizer_json import STALE, ids_of
from whatwhere.what.text import ids_of_each
from whatwhere.what.token_ids import lost_id, nested_configs, padding_dependence, padding_shift, renumbered, token_ids

if TYPE_CHECKING:
    from torch import Tensor

    from whatwhere.what.resizing.new_rows import Mixture

Method = Literal["subtokens", "omp"]
METHODS: tuple[Method, ...] = ("subtokens", "omp")
_OTHER_FILES = ("tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")


def move_to_tokenizer(
    path: str | Path, out: str | Path, tokenizer: str | Path, *, method: Method = "subtokens", force: bool = False
) -> Report:
    """Write a checkpoint with the tokens of another tokenizer: a tokenizer.json, or that of a folder.

    A token of both tokenizers keeps its rows exactly; if the two mark words differently, tokens are matched by their
    text, and by whether they begin a word. Any other token gets the mean row of the tokens that the old tokenizer
    splits its text into; if these are only unknown tokens, the mean of all rows. By the method `omp` it gets instead a
    sum of shared tokens, see `whatwhere.what.resizing.pursue`, computed in the table of the model in the folder of the
    tokenizer. The model then needs some training.

    If positions are counted from pad_token_id (as in RoBERTa), the learned position table is shifted with it, so that
    each position keeps its row. Sinusoidal positions (M2M-100) cannot be shifted, so the padding token must keep its id
    there.
    """
    from whatwhere.what.resizing import Rearrangement

    copy, other = ChangedCopy(path, out, force), Path(tokenizer)
    require_choice("convert", "method", method, METHODS)
    contents = copy.require_tokenizer("its tokens are not known", "Pass a folder with its tokenizer.")
    file = other / TOKENIZER if other.is_dir() else other
    new_contents = tokenizer_json_in(other) if other.is_dir() else read_tokenizer(file)
    if isinstance(new_contents, str):
        raise CheckpointError(f"{other}: {new_contents}.\nPass a tokenizer.json, or a folder with one.")
    built(new_contents)  # raises an error if it is not a tokenizer
    old, new = by_id(copy.path, ids_of(contents).items()), by_id(file, ids_of(new_contents).items())
    if not new:
        raise CheckpointError(f"{file} has no tokens.\nPass another tokenizer.")
    tables = vocabulary_tensors(copy)
    rows = tables[0].shape[0]
    old_keys, new_keys = token_keys(old, new)
    shared = align(old_keys[:rows], new_keys)
    origin = np.full(len(new), -1, dtype=np.int64)
    origin[shared.second] = shared.first
    missing = [n for n in np.flatnonzero(origin == -1).tolist() if new[n]]
    if method == "omp":
        mixtures = _matching_pursuit(other, shared, missing, len(new))
    else:
        mixtures = _means_of_subtokens(contents, old, new, missing, rows)
    measured = rearrange(copy, Rearrangement(origin, rows, mixtures, known=min(len(old), rows)), tables)
    new_ids = dict(zip(shared.first.tolist(), shared.second.tolist(), strict=True))
    _write_files(copy, file, new_contents, new_ids, tables, len(new))
    copy.notes = ["the model needs some training with the new tokenizer"]
    copy.notes += notes_on_vocabulary(copy, tables, renumbered=True)
    means = len(new) - len(new_ids) - len(mixtures)
    return copy.write(
        "convert", lambda: Retokenized(len(new), len(new_ids), len(mixtures), method, means, tuple(measured))
    )


def _means_of_subtokens(
    contents: Json, old: Sequence[str], new: Sequence[str], missing: Sequence[int], rows: int
) -> "dict[int, Mixture]":
    """Return the tokens that the old tokenizer splits each missing token into, with equal weights."""
    tokenizer = built(contents)
    mixtures: dict[int, Mixture] = {}
    unknown = tokenizer.token_to_id(str(contents["model"].get("unk_token")))
    convention, old_convention = marking(new), marking(old)
    new_texts = texts(new, convention)
    with counted("splitting the text of new tokens", len(missing), "tokens") as advance:
        for n in missing:
            text = new_texts[n]
            text = text.decode("utf-8", "ignore") if isinstance(text, bytes) else text
            words = convention == "wordpiece" and old_convention in ("bytes", "sentencepiece")
            if words and not new[n].startswith("##"):
                text = f" {text}"
            # Some tokenizers add a leading space: the shorter result is that of the text itself.
            found = ids_of_each(tokenizer, [text, text.removeprefix(" ")])
            shortest = min((ids for ids in found if ids), key=len, default=[])
            ids = [number for number in shortest if number != unknown and number < rows]
            if ids:
                mixtures[n] = (ids, [1 / len(ids)] * len(ids))
            advance(1)
    return mixtures


def _matching_pursuit(other: Path, shared: Alignment, missing: Sequence[int], size: int) -> "dict[int, Mixture]":
    """Express each missing token as a sum of shared tokens, computed in the table of the other model."""
    import torch

    from whatwhere.what.resizing import pursue

    donor = Checkpoint.open(other) if other.is_dir() else None
    if donor is None or donor.token_table is None or donor.entry(donor.token_table).shape[0] < size:
        raise CheckpointError(
            f"{other} holds no token table for its {size:,} tokens, which matching pursuit needs.\n"
            "Pass the folder of a model that was trained with this tokenizer, or --method subtokens."
        )
    if not len(shared.first):
        raise CheckpointError("the two tokenizers share no token, so others cannot be sums of shared ones.")
    begin_step(f"reading {donor.path}")
    table = torch.from_numpy(donor.array(donor.token_table))
    targets = table[torch.tensor(missing, dtype=torch.int64)]
    ids, weights = pursue(table[torch.from_numpy(shared.second)], targets)
    origin = shared.first[ids.numpy()]
    return {n: (origin[k].tolist(), weights[k].tolist()) for k, n in enumerate(missing)}


def _write_files(
    copy: ChangedCopy, tokenizer: Path, contents: Json, new_ids: Mapping[int, int], tables: Sequence[Entry], size: int
) -> None:
    """Write the files of the new tokenizer, and the configurations with its ids of special tokens."""
    folder, rows = tokenizer.parent, tables[0].shape[0]
    copy.files = {**dict.fromkeys((*STALE, *_OTHER_FILES)), TOKENIZER: as_json(contents)}
    for file in (File(folder / name) for name in _OTHER_FILES if (folder / name).is_file()):
        copy.files[file.path.name] = file.head(min(file.size, MAX_TOKENIZER_BYTES))
    stated = optional_json(folder / "config.json")
    for name, before in configs_of(copy).items():
        _require_timestamps(before, new_ids, rows)
        config: dict[Any, Any] = renumbered(before, rows, new_ids.get)
        special = {key: stated[key] for key in config if key.endswith("_token_id") and stated.get(key) is not None}
        config |= {key: value for key, value in special.items() if token_ids({key: value}, size)}
        if name == "config.json":
            if (missing := lost_id(before, config)) is not None:
                raise CheckpointError(
                    f"{missing[0]} of config.json is #{missing[1]}, which the new tokenizer does not have, but models "
                    f"of the type {before.get('model_type')} need one.\nAdd that token, or state another in a "
                    "config.json beside the new tokenizer."
                )
            moved = _move_positions(copy, before, _with_padding_of(config, contents, folder), new_ids)
            config = dict(with_rows(moved, tables, rows, size))
        copy.files[name] = as_json(config)


def _require_timestamps(config: Json, new_ids: Mapping[int, int], rows: int) -> None:
    """Raise CheckpointError if the timestamp tokens of Whisper would not stay consecutive."""
    first = config.get("no_timestamps_token_id")
    if not isinstance(first, int):
        return
    new = [new_ids.get(number) for number in range(max(first - 1, 0), rows)]
    start = new[0]
    if start is None or new != list(range(start, start + len(new))):
        raise CheckpointError(
            f"the model counts timestamps from no_timestamps_token_id, {first}: that token, the one before it and all "
            "that follow must be in the new tokenizer, consecutive and in the same order.\nNumber them so."
        )


def _with_padding_of(config: Json, tokenizer: Json, folder: Path) -> Json:
    """Return a configuration with the padding id of the new tokenizer, if its own is null."""
    if config.get("pad_token_id", 0) is not None:
        return config
    number = (tokenizer.get("padding") or {}).get("pad_id")
    if number is None:
        token = optional_json(folder / "tokenizer_config.json").get("pad_token")
        token = token.get("content") if isinstance(token, Mapping) else token
        number = ids_of(tokenizer).get(str(token))
    return {**config, "pad_token_id": number}


def _move_positions(copy: ChangedCopy, before: Json, config: Json, new_ids: Mapping[int, int]) -> Json:
    """Shift learned position tables as the padding token is, if positions are counted from it; return their length."""
    if (old := padding_dependence(before)) is None:
        return config
    padding = old[1]
    new = _stated_padding(config) if _stated_padding(before) in (padding, None) else new_ids.get(padding)
    if new is None:
        raise CheckpointError(
            "positions of this model are counted from pad_token_id, but the new tokenizer has no padding token that "
            "is known.\nState it in tokenizer_config.json, as pad_token, beside tokenizer.json."
        )
    shift = padding_shift(old, new)
    tables = position_tensors_after_padding(copy.checkpoint) if shift else []
    if not tables:
        return config
    from whatwhere.what.resizing.new_rows import change_of_positions

    rows = tables[0].shape[0]

    def moved(entry: Entry) -> "Tensor":
        return change_of_positions(entry.name, rows, shift).apply(copy.checkpoint.tensor(entry.name))

    for entry in tables:
        what = f"shifted by {shift} rows, as pad_token_id is: each position keeps its row"
        copy.compute(entry, partial(moved, entry), what, (rows + shift, *entry.shape[1:]))
    recompute_buffers(copy, rows, rows + shift)
    return with_position_count(config, rows, rows + shift)


def _stated_padding(config: Json) -> int | None:
    return next((part["pad_token_id"] for part in nested_configs(config) if "pad_token_id" in part), None)
