"""Keys that differ between layers: types of layers, which of them rotate queries and keys, and sliding windows."""

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from whatwhere.errors import SettingError
from whatwhere.models.configuration.description import Description
from whatwhere.models.configuration.keys import Keys, named, short_repr
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

OLDER_NAMES = {"attention": FULL, "mamba": LINEAR}
BIDIRECTIONAL = "tokens attend to later tokens too (use_bidirectional_attention)"

Labels = tuple[str | None, ...]
"""For each layer the label of its set of rope parameters; None if it does not rotate."""
LabelsAndTypes = tuple[Labels, tuple[str, ...] | None]
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
    rotated = rule.rotated if rule.only is None or keys.take(rule.only[0], default=None) == rule.only[1] else ()
    return tuple(layer_type if layer_type in rotated else None for layer_type in types), types


def read_types(keys: Keys, rule: Layers, layers: int) -> tuple[str, ...]:
    """Return the type of each layer, from the list if there is one, or by the rule."""
    keys.known |= _pattern_keys(rule)
    if (listed := read_layer_types(keys, with_drafts(keys, "layer_types", layers, rule.drafts_key))) is not None:
        return listed[:layers]
    if rule.one_key is not None and not (rule.cycle and keys.values.get(rule.one_key) is None):
        numbers = keys.listed(rule.one_key, layers, default=None)
        numbers = range(0 if rule.listed_only else layers) if numbers is None else numbers
        needed = f"must be the number of a layer, 0 to {layers - 1}."
        keys.require_each(rule.one_key, numbers, lambda each: type(each) is int and 0 <= each < layers, needed)
        chosen = set(numbers)
        return tuple(rule.one if layer in chosen else rule.others for layer in range(layers))
    if rule.cycle:
        types = [rule.cycle[layer % len(rule.cycle)] for layer in range(layers)]
        for layer, layer_type in rule.at.items():
            if -layers <= layer < layers:
                types[layer] = layer_type
        return tuple(types)
    period = rule.period if rule.period_key is None else keys.whole(rule.period_key, default=rule.period)
    shift = -layers % period if rule.from_end else 0
    shift += 0 if rule.first else 1
    return tuple(rule.others if (layer + shift) % period else rule.one for layer in range(layers))


def _pattern_keys(rule: Layers) -> set[str]:
    return {key for key in (rule.period_key, rule.one_key) if key is not None}


def _dense_prefix(keys: Keys, layers: int) -> LabelsAndTypes:
    """Layers with a window rotate, and so do full ones of a dense prefix whose pattern is 1 (Command A+)."""
    mlp_key = "mlp_layer_types"
    dense = keys.whole("first_k_dense_replace", default=0, least=0, most=layers)
    # The last layer of each period has full attention; the prefix and the layers behind it have periods of their own.
    prefix_period = keys.whole("prefix_dense_sliding_window_pattern", default=1)
    period = keys.whole("sliding_window_pattern", default=4)
    listed = keys.listed(mlp_key, layers, default=None)
    mlps = ["dense"] * dense + ["sparse"] * (layers - dense) if listed is None else listed
    one_per_layer(keys.path + mlp_key, mlps, layers)
    types = read_layer_types(keys, layers)
    if types is None:
        periods = [(layer, prefix_period) for layer in range(dense)]
        periods += [(layer, period) for layer in range(layers - dense)]
        types = tuple(SLIDING if (layer + 1) % each else FULL for layer, each in periods)
    rotated = [
        each == SLIDING or (mlp == "dense" and prefix_period == 1) for each, mlp in zip(types, mlps, strict=True)
    ]
    return tuple(each if turns else None for each, turns in zip(types, rotated, strict=True)), types


def _no_rope_layers(keys: Keys, layers: int) -> LabelsAndTypes:
    """The list `no_rope_layers` has 1 for each layer that rotates, in spite of its name, and 0 for each other one."""
    key, period_key = "no_rope_layers", "no_rope_layer_interval"
    keys.known |= {key, period_key}
    listed = keys.take(key, default=None)
    if listed is None or listed == []:
        period = keys.whole(period_key, default=4)
        listed = [int((layer + 1) % period != 0) for layer in range(layers)]
    one_per_layer(keys.path + key, listed, layers)
    needed = "must be 1 (the layer rotates) or 0."
    keys.require_each(key, listed, lambda each: not isinstance(each, bool) and each in (0, 1), needed)
    return tuple("" if rotated else None for rotated in listed), None


ZAMBA2_HYBRIDS = (6, 12, 18, 24, 30, 36, 42, 47, 51)
"""Numbers of Zamba 2's hybrid layers, if there is no list."""


def _hybrid_if_flag(keys: Keys, layers: int) -> LabelsAndTypes:
    """The layers of the type `hybrid` rotate if a flag is on, and none otherwise, as in Zamba 2."""
    names = ("layers_block_type", "layer_types")
    listed = keys.take(*names, default=None)
    types = tuple(HYBRID if layer in ZAMBA2_HYBRIDS else LINEAR for layer in range(layers))
    if listed is not None:
        types = _current_names(one_per_layer(keys.path + names[0], listed, layers))
    keys.require_each(names[0], types, (HYBRID, LINEAR).__contains__, f"must be {HYBRID} or {LINEAR}.")
    on = keys.flag("use_mem_rope", default=False)
    return tuple("" if on and each == HYBRID else None for each in types), types


def _repeated_blocks(keys: Keys, layers: int) -> LabelsAndTypes:
    """Layers are of types that a list repeats until there are as many as needed: RecurrentGemma."""
    key, names = "block_types", {"recurrent": LINEAR, "attention": SLIDING}
    default = ("recurrent", "recurrent", "attention")
    blocks = keys.listed(key, layers, default=default) or default
    keys.require_each(key, blocks, list(names).__contains__, f"must be {' or '.join(names)}.")
    types = tuple(names[blocks[layer % len(blocks)]] for layer in range(layers))
    return tuple(each if each in ATTENTION else None for each in types), types


_RULES: Mapping[str, Callable[[Keys, int], LabelsAndTypes]] = named(
    _dense_prefix, _hybrid_if_flag, _no_rope_layers, _repeated_blocks
)

LETTERS: Mapping[str, str] = {"M": LINEAR, "*": FULL, "-": MLP, "E": MOE}
"""Letter of Nemotron-H's `hybrid_override_pattern` -> type of a layer."""


def read_layer_pattern(keys: Keys) -> tuple[str, ...]:
    """Return the type of each layer of Nemotron-H, from a list or a text with a letter for each layer.

    Neither its authors' code nor that of transformers reads `num_hidden_layers`.
    """
    names, pattern_key = ("layers_block_type", "layer_types"), "hybrid_override_pattern"
    listed, pattern = keys.take(*names, default=None), keys.take(pattern_key, default=None)
    if listed is None and pattern is None:
        return (LINEAR, MOE, FULL, MLP)
    if listed is None:
        if not isinstance(pattern, str) or {*pattern} - {*LETTERS} or not 0 < len(pattern) <= MAX_LAYERS:
            raise keys.wrong(pattern_key, pattern, f"must be a text of {', '.join(LETTERS)}.")
        return tuple(LETTERS[letter] for letter in pattern)
    if not isinstance(listed, list | tuple) or not 0 < len(listed) <= MAX_LAYERS:
        raise keys.wrong(names[0], listed, "must be a list of layer types.")
    types, known = _current_names(listed), list(LETTERS.values())
    keys.require_each(names[0], types, known.__contains__, f"must be one of {', '.join(known)}.")
    return types


def read_layer_types(keys: Keys, layers: int) -> tuple[str, ...] | None:
    """Return the type of each layer by its current name, from `layer_types`; None if there is no such list.

    Raises:
        SettingError: If the list has a different length, or an unknown type.
    """
    value = keys.take("layer_types", default=None)
    if value is None:
        return None
    listed = one_per_layer(f"{keys.path}layer_types", value, layers)
    for layer, layer_type in enumerate(listed):
        if not isinstance(layer_type, str) or layer_type not in (*LAYER_TYPES, *OLDER_NAMES):
            near = get_close_matches(layer_type, LAYER_TYPES, n=1) if isinstance(layer_type, str) else []
            raise SettingError(
                f"a configuration got {keys.path}layer_types[{layer}]={short_repr(layer_type)}, but knows only: "
                f"{', '.join(LAYER_TYPES)}.{f' Did you mean {near[0]!r}?' if near else ''}"
            )
    return _current_names(listed)


def _current_names(listed: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(OLDER_NAMES.get(each, each) if isinstance(each, str) else each for each in listed)


def with_drafts(keys: Keys, name: str, layers: int, drafts_key: str | None) -> int:
    """Return the number of entries that a list by layer has: one for each layer, and for each that drafts if it has.

    The key `drafts_key` has the number of those; None is none.
    """
    drafts = 0 if drafts_key is None else keys.whole(drafts_key, default=0, least=0, most=layers)
    listed = keys.values.get(name)
    return layers + drafts if isinstance(listed, list | tuple) and len(listed) == layers + drafts else layers


def one_per_layer(path: str, listed: Any, layers: int) -> Sequence[Any]:
    """Return a list, if it has one entry for each layer."""
    needed = f"must be a list of one entry for each of {layers} layers"
    if not isinstance(listed, list | tuple):
        raise SettingError(f"{path} is {short_repr(listed)}, but {needed}.")
    if len(listed) != layers:
        raise SettingError(f"{path} {needed}, but has {len(listed)}.")
    return listed


def read_windows(keys: Keys, rule: Windows | None, model: Description, turned: bool) -> tuple[BlockWindows, bool]:
    """Return the window of each layer, and whether a key makes tokens attend to later ones too.

    Args:
        turned: whether a different key did so already.
    """
    if rule is None:
        return (None,) * model.layers, False
    if rule.by == "global_local":
        return _global_local(keys, model.layers), False
    if rule.by == "both_sides":
        return _both_sides(keys, model.layers), False
    windowed = CHUNKED if rule.chunked else rule.windowed
    on = rule.switch is None or keys.flag(rule.switch, default=False)
    size = keys.whole(rule.key, default=None, least=1 if on else 0)
    before = None if rule.previous is None else keys.whole(rule.previous, default=None)
    size = size if before is None else before + 1
    types = _window_types(keys, rule, model, on and size is not None)
    both_sides = rule.bidirectional and keys.flag("use_bidirectional_attention", default=False)
    if windowed in types and (size is None or not on):
        raise SettingError(
            f"layer {types.index(windowed)} is of the type {windowed}, but {keys.path}{rule.key} is "
            f"{short_repr(size)}{'' if on else f' and {rule.switch} is off'}: the number of tokens that it attends "
            "to is missing."
        )
    if rule.halved is not None and size is not None:  # transformers writes the half too
        keys.require("sliding_window", size // 2, f"it is half of {rule.key}.")
    halved = 1 if both_sides else rule.halved
    size = size if halved is None or size is None else size // 2 + halved
    added = rule.added if rule.added_to in (None, model.part) else 0
    size = None if size is None else size + added + turned
    if turned and rule.chunked and windowed in types:
        raise SettingError(
            f"{keys.path}{DIRECTION} is False, but chunks of {keys.owner!r} stay causal in transformers: layers "
            "would attend in different directions, which whatwhere does not read."
        )
    window = Window(max(size, 1), rule.chunked) if size is not None and on else None
    return tuple(window if layer_type == windowed else None for layer_type in types), both_sides


def _window_types(keys: Keys, rule: Windows, model: Description, on: bool) -> tuple[str, ...]:
    """Return the type of each layer."""
    types = model.layer_types or (FULL,) * model.layers
    if rule.by == "type":
        return types
    if rule.by == "pattern":
        return read_types(keys, rule.layers or Layers(), model.layers)
    if rule.by == "every":
        windowed = tuple(SLIDING if layer_type == FULL and on else layer_type for layer_type in types)
        if model.layer_types is None and read_layer_types(keys, model.layers) not in (None, windowed):
            raise SettingError(
                f"{keys.path}layer_types names types of layers, but the code of {keys.owner!r} does not read it: by "
                f"{rule.key} all are {windowed[0]}.\nRemove it, or use a model type whose layers differ, such as "
                "ministral."
            )
        return windowed
    start = rule.start
    if rule.by == "from_layer" and rule.start_key is not None:
        start = keys.whole(rule.start_key, default=start, least=0)
    if (listed := read_layer_types(keys, model.layers)) is not None:
        return listed
    if rule.by == "from_layer":
        near = [
            layer < start and layer % 2 == 0 if rule.alternating else layer >= start for layer in range(model.layers)
        ]
    else:  # those that rotate, or those that do not
        near = [(plan is not None) == (rule.by == "rotated") for plan in model.query_key]
    return tuple((CHUNKED if rule.chunked else rule.windowed) if on and each else FULL for each in near)


def _global_local(keys: Keys, layers: int) -> BlockWindows:
    """Read GPT-Neo's windows: `attention_types` lists patterns of layers, each with its number of repetitions."""
    size = keys.whole("window_size")
    types = _repeated_patterns(keys, layers)
    repeated = keys.take("attention_layers", default=None)
    if repeated is not None and list(repeated if isinstance(repeated, list | tuple) else ()) != types:
        raise keys.wrong(
            "attention_layers", repeated, f"attention_types makes it {short_repr(types)}: keep one of them."
        )
    return tuple(Window(size) if layer_type == "local" else None for layer_type in types)


def _repeated_patterns(keys: Keys, layers: int) -> list[str]:
    patterns: list[tuple[Sequence[str], int]] = []
    for entry in keys.listed("attention_types", layers):
        pattern, times = entry if isinstance(entry, list | tuple) and len(entry) == 2 else (None, None)
        if (
            not isinstance(pattern, list | tuple)
            or not isinstance(times, int)
            or not 0 <= times <= layers
            or any(layer_type not in ("global", "local") for layer_type in pattern)
        ):
            raise SettingError(
                f"{keys.path}attention_types has {short_repr(entry)}, but needs pairs such as "
                "[['global', 'local'], 12]."
            )
        patterns.append((pattern, times))
    if (count := sum(len(pattern) * times for pattern, times in patterns)) != layers:  # before they are repeated
        raise SettingError(
            f"{keys.path}attention_types names {count} layers, but there are {layers}: "
            f"write [[['global', 'local'], {max(layers // 2, 1)}]], or one entry for each."
        )
    return [layer_type for pattern, times in patterns for _ in range(times) for layer_type in pattern]


def _both_sides(keys: Keys, layers: int) -> BlockWindows:
    """Read windows that count both sides of a token: a number, or a list with one for each layer, as in Longformer."""
    key = "attention_window"
    if isinstance(keys.values.get(key), list | tuple):
        both = [each.whole(key) for each in numbers_by_layer(keys, key, layers) or ()]
    else:
        both = [keys.whole(key, default=512)] * layers
    for one in both:
        if one % 2:
            raise SettingError(f"{keys.path}{key} is {one}, but must be even: half of it is on each side.")
    return tuple(Window(one // 2 + 1) for one in both)


def numbers_by_layer(keys: Keys, key: str, layers: int) -> list[Keys] | None:
    """Return a reader of the number that a list has for each layer; None without the list."""
    listed = keys.listed(key, layers, default=None)
    if listed is None:
        return None
    if len(listed) != layers:
        raise SettingError(f"{keys.path}{key} has {len(listed)} numbers, but there are {layers} layers.")
    return [Keys({key: one}, {}, keys.owner, keys.path) for one in listed]
