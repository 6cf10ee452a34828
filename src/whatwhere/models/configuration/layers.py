"""Keys that differ between layers: types of layers, which of them rotate queries and keys, and sliding windows."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from whatwhere.errors import SettingError
from whatwhere.models.configuration.description import Description
from whatwhere.models.configuration.keys import Keys, named, near, short_repr
from whatwhere.models.configuration.model_types import (
    ATTENTION,
    CHUNKED,
    DIRECTION,
    FULL,
    HYBRID,
    LAYER_TYPES,
    LINEAR,
    MAX_LAYERS,
    MLP,
    MOE,
    SLIDING,
    Layers,
    Windows,
)
from whatwhere.where.window import Window

WORDS: Mapping[str, str] = {**{each: each for each in LAYER_TYPES}, "attention": FULL, "mamba": LINEAR}
"""Names of types of layers in `layer_types`, older ones last -> the current names."""
BLOCKS = ("layers_block_type", "layer_types")
BIDIRECTIONAL = "tokens attend to later tokens too (use_bidirectional_attention)"

Labels = tuple[str | None, ...]  # for each layer the label of its set of rope parameters; None if it does not rotate
Types = tuple[str, ...]
LabelsAndTypes = tuple[Labels, Types | None]
BlockWindows = tuple[Window | None, ...]


def read_labels(keys: Keys, rule: Layers | None, layers: int) -> LabelsAndTypes:
    """Return the label of each layer, and the layer types if they determine it; without a rule all rotate alike."""
    if rule is None:
        return ("",) * layers, None
    if rule.rule != "types":
        return _RULES[rule.rule](keys, layers)
    if rule.unless is not None:
        keys.take(rule.unless, default=None)
        keys.known |= {"layer_types", *_pattern_keys(rule)}
        if rule.unless in keys.values and keys.values[rule.unless] is None:
            return (FULL,) * layers, (FULL,) * layers
    types = read_types(keys, rule, layers)
    rotates = rule.only is None or keys.take(rule.only[0], default=None) == rule.only[1]
    return tuple(each if rotates and each in rule.rotated else None for each in types), types


def read_types(keys: Keys, rule: Layers, layers: int) -> Types:
    """Return the type of each layer, from the list if there is one, or by the rule."""
    keys.known |= _pattern_keys(rule)
    if listed := read_list(keys, "layer_types", layers=layers):
        return listed
    numbers = None if rule.one_key is None else keys.listed(rule.one_key, layers, default=None)
    if rule.one_key is not None and (numbers is not None or rule.listed_only):
        needed = f"must be the number of a layer, 0 to {layers - 1}."
        keys.require_each(rule.one_key, numbers or (), lambda each: type(each) is int and 0 <= each < layers, needed)
        chosen = set(numbers or ())
        return tuple(rule.one if layer in chosen else rule.others for layer in range(layers))
    period = rule.period if rule.period_key is None else keys.whole(rule.period_key, default=rule.period)
    shift = (0 if rule.first else 1) + (-layers % period if rule.from_end else 0)
    types = [rule.others if (layer + shift) % period else rule.one for layer in range(layers)]
    if rule.cycle:
        types = [rule.cycle[layer % len(rule.cycle)] for layer in range(layers)]
    for layer, layer_type in rule.at.items():
        if -layers <= layer < layers:
            types[layer] = layer_type
    return tuple(types)


def _pattern_keys(rule: Layers) -> set[str]:
    return {key for key in (rule.period_key, rule.one_key) if key is not None}


def _dense_prefix(keys: Keys, layers: int) -> LabelsAndTypes:
    """Layers with a window rotate, and so do full ones of a dense prefix whose pattern is 1 (Command A+)."""
    dense = keys.whole("first_k_dense_replace", default=0, least=0, most=layers)
    # The last layer of each period has full attention; the prefix and the layers behind it have periods of their own.
    prefix_period = keys.whole("prefix_dense_sliding_window_pattern", default=1)
    period = keys.whole("sliding_window_pattern", default=4)
    mlps = one_per_layer(keys, "mlp_layer_types", layers=layers) or ["dense"] * dense + ["sparse"] * (layers - dense)
    periods = [(layer, prefix_period) for layer in range(dense)] + [(n, period) for n in range(layers - dense)]
    usual = tuple(SLIDING if (layer + 1) % each else FULL for layer, each in periods)
    types = read_list(keys, "layer_types", layers=layers) or usual
    return tuple(
        each if each == SLIDING or (mlp == "dense" and prefix_period == 1) else None
        for each, mlp in zip(types, mlps, strict=True)
    ), types


def _no_rope_layers(keys: Keys, layers: int) -> LabelsAndTypes:
    """The list `no_rope_layers` has 1 for each layer that rotates, in spite of its name, and 0 for each other one."""
    key, period_key = "no_rope_layers", "no_rope_layer_interval"
    keys.known |= {key, period_key}
    listed = one_per_layer(keys, key, layers=layers) if keys.values.get(key) != [] else None
    if listed is None:
        period = keys.whole(period_key, default=4)
        listed = [int((layer + 1) % period != 0) for layer in range(layers)]
    needed = "must be 1 (the layer rotates) or 0."
    keys.require_each(key, listed, lambda each: not isinstance(each, bool) and each in (0, 1), needed)
    return tuple("" if rotated else None for rotated in listed), None


ZAMBA2_HYBRIDS = (6, 12, 18, 24, 30, 36, 42, 47, 51)  # numbers of Zamba 2's hybrid layers, if there is no list


def _hybrid_if_flag(keys: Keys, layers: int) -> LabelsAndTypes:
    """The layers of the type `hybrid` rotate if a flag is on, and none otherwise, as in Zamba 2."""
    usual = tuple(HYBRID if layer in ZAMBA2_HYBRIDS else LINEAR for layer in range(layers))
    words = {HYBRID: HYBRID, LINEAR: LINEAR, "mamba": LINEAR}
    types = read_list(keys, *BLOCKS, layers=layers, words=words) or usual
    on = keys.flag("use_mem_rope", default=False)
    return tuple("" if on and each == HYBRID else None for each in types), types


def _repeated_blocks(keys: Keys, layers: int) -> LabelsAndTypes:
    """Layers are of types that a list repeats until there are as many as needed: RecurrentGemma."""
    blocks = read_list(keys, "block_types", words={"recurrent": LINEAR, "attention": SLIDING})
    blocks = blocks or (LINEAR, LINEAR, SLIDING)
    types = tuple(blocks[layer % len(blocks)] for layer in range(layers))
    return tuple(each if each in ATTENTION else None for each in types), types


_RULES: Mapping[str, Callable[[Keys, int], LabelsAndTypes]] = named(
    _dense_prefix, _hybrid_if_flag, _no_rope_layers, _repeated_blocks
)

LETTERS: Mapping[str, str] = {"M": LINEAR, "*": FULL, "-": MLP, "E": MOE}
"""Letter of Nemotron-H's `hybrid_override_pattern` -> type of a layer."""


def read_layer_pattern(keys: Keys) -> Types:
    """Return the type of each layer of Nemotron-H, from a list or a text with a letter for each: no key counts them."""
    key = "hybrid_override_pattern"
    words = {name: own for name, own in WORDS.items() if own in LETTERS.values()}
    listed, pattern = read_list(keys, *BLOCKS, words=words), keys.take(key, default=None)
    if listed is not None or pattern is None:
        return listed or (LINEAR, MOE, FULL, MLP)
    if not isinstance(pattern, str) or {*pattern} - {*LETTERS} or not 0 < len(pattern) <= MAX_LAYERS:
        raise keys.wrong(key, pattern, f"must be a text of {', '.join(LETTERS)}.")
    return tuple(LETTERS[letter] for letter in pattern)


# Lists


def read_list(keys: Keys, *names: str, layers: int | None = None, words: Mapping[str, str] = WORDS) -> Types | None:
    """Return the types that a list of words has, of which there is one for each layer; None without it."""
    listed = one_per_layer(keys, *names, layers=layers)
    for layer, word in enumerate(listed or ()):
        if not isinstance(word, str) or word not in words:
            hint = near(word, words) if isinstance(word, str) else ""
            raise keys.wrong(f"{names[0]}[{layer}]", word, f"must be one of {', '.join(words)}.{hint}")
    return None if listed is None else tuple(words[word] for word in listed)


def one_per_layer(keys: Keys, *names: str, layers: int | None) -> Sequence[Any] | None:
    """Return a list, if it has one entry for each layer, or None without it; None is any number of layers."""
    listed = keys.take(*names, default=None)
    if listed is None:
        return None
    needed = "must be a list" + (f" of one entry for each of {layers} layers" if layers is not None else "")
    if not isinstance(listed, list | tuple):
        raise keys.wrong(names[0], listed, f"{needed}.")
    drafts = keys.values.get("num_nextn_predict_layers")  # of further tokens, which a list may end with (Step)
    count = len(listed) - (drafts if layers is not None and len(listed) > layers and type(drafts) is int else 0)
    if not 0 < count <= MAX_LAYERS or layers not in (None, count):
        raise SettingError(f"{keys.path}{names[0]} {needed}, but has {len(listed)}.")
    return listed[:count]


def numbers_by_layer(keys: Keys, key: str, layers: int) -> list[Keys] | None:
    """Return a reader of the number that a list has for each layer; None without the list."""
    listed = one_per_layer(keys, key, layers=layers)
    return None if listed is None else [Keys({key: one}, {}, keys.owner, keys.path) for one in listed]


# Windows


def read_windows(keys: Keys, rule: Windows | None, model: Description, turned: bool) -> tuple[BlockWindows, bool]:
    """Return the window of each layer, and whether a key makes tokens attend to later ones, if none did (`turned`)."""
    if rule is None:
        return (None,) * model.layers, False
    if rule.by in ("global_local", "both_sides"):
        return (_global_local if rule.by == "global_local" else _both_sides)(keys, model.layers), False
    windowed = CHUNKED if rule.chunked else rule.windowed
    on = rule.switch is None or keys.flag(rule.switch, default=False)
    size = keys.whole(rule.key, default=None, least=1 if on else 0)
    before = None if rule.previous is None else keys.whole(rule.previous, default=None)
    size = size if before is None else before + 1
    types = _window_types(keys, rule, model, windowed if on and size is not None else FULL)
    both_sides = rule.bidirectional and keys.flag("use_bidirectional_attention", default=False)
    if windowed in types and (size is None or not on):
        raise SettingError(
            f"layer {types.index(windowed)} is of the type {windowed}, but {keys.path}{rule.key} is "
            f"{short_repr(size)}{'' if on else f' and {rule.switch} is off'}: the number of tokens that it attends "
            "to is missing."
        )
    if turned and rule.chunked and windowed in types:
        raise SettingError(
            f"{keys.path}{DIRECTION} is False, but chunks of {keys.owner!r} stay causal in transformers: layers "
            "would attend in different directions, which whatwhere does not read."
        )
    if size is None or not on:
        return (None,) * model.layers, both_sides
    if rule.halved:  # transformers writes the half too
        keys.require("sliding_window", size // 2, f"it is half of {rule.key}.")
    size = size // 2 + both_sides if rule.halved or both_sides else size
    # In both directions it counts the tokens of one side, without that of the query.
    window = Window(max(size + (not model.causal), 1), rule.chunked)
    return tuple(window if layer_type == windowed else None for layer_type in types), both_sides


def _window_types(keys: Keys, rule: Windows, model: Description, windowed: str) -> Types:
    """Return the type of each layer, `windowed` where a rule gives it the window."""
    types = model.layer_types or (FULL,) * model.layers
    if rule.by == "type":
        return types
    if rule.by == "pattern":
        return read_types(keys, rule.layers or Layers(), model.layers)
    if rule.by == "every":
        types = tuple(windowed if layer_type == FULL else layer_type for layer_type in types)
        if model.layer_types is None and read_list(keys, "layer_types", layers=model.layers) not in (None, types):
            raise SettingError(
                f"{keys.path}layer_types names types of layers, but the code of {keys.owner!r} does not read it: by "
                f"{rule.key} all are {types[0]}.\nRemove it, or use a model type whose layers differ, such as "
                "ministral."
            )
        return types
    near_by: Iterable[bool] = ((plan is not None) == (rule.by == "rotated") for plan in model.query_key)
    if rule.by == "from_layer":
        start = rule.start if rule.start_key is None else keys.whole(rule.start_key, default=rule.start, least=0)
        layers = range(model.layers)
        near_by = (n < start and n % 2 == 0 if rule.alternating else n >= start for n in layers)
    return read_list(keys, "layer_types", layers=model.layers) or tuple(windowed if has else FULL for has in near_by)


def _global_local(keys: Keys, layers: int) -> BlockWindows:
    """Read GPT-Neo's windows: `attention_types` lists patterns of layers, each with its number of repetitions."""
    key, repeated_key, patterns = "attention_types", "attention_layers", keys.listed("attention_types", layers)

    def fits(entry: Any) -> bool:
        pattern, times = entry if isinstance(entry, list | tuple) and len(entry) == 2 else (None, None)
        known = isinstance(pattern, list | tuple) and all(each in ("global", "local") for each in pattern)
        return known and isinstance(times, int) and 0 <= times <= layers

    keys.require_each(key, patterns, fits, "needs pairs such as [['global', 'local'], 12].")
    if (count := sum(len(pattern) * times for pattern, times in patterns)) != layers:  # before they are repeated
        raise SettingError(
            f"{keys.path}{key} names {count} layers, but there are {layers}: write [[['global', 'local'], "
            f"{max(layers // 2, 1)}]], or one entry for each."
        )
    types = [layer_type for pattern, times in patterns for _ in range(times) for layer_type in pattern]
    repeated = one_per_layer(keys, repeated_key, layers=layers)
    if repeated is not None and list(repeated) != types:
        raise keys.wrong(repeated_key, repeated, f"{key} makes it {short_repr(types)}: keep one of them.")
    window = Window(keys.whole("window_size"))
    return tuple(window if layer_type == "local" else None for layer_type in types)


def _both_sides(keys: Keys, layers: int) -> BlockWindows:
    """Read windows that count both sides of a token: a number, or a list with one for each layer, as in Longformer."""
    key = "attention_window"
    if isinstance(keys.values.get(key), list | tuple):
        both = [each.whole(key) for each in numbers_by_layer(keys, key, layers) or ()]
    else:
        both = [keys.whole(key, default=512)] * layers
    keys.require_each(key, both, lambda one: one % 2 == 0, "must be even: half of it is on each side.")
    return tuple(Window(one // 2 + 1) for one in both)
