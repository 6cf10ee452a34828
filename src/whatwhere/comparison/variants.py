"""Variants, schemes with settings of their own such as rotary@randomized or learned@dim=16,tied, and their layers."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import product
from math import isfinite, nan
from statistics import fmean
from typing import Any

from whatwhere.comparison.results import RunResult, SettingChoice
from whatwhere.comparison.settings import Settings, rank_of
from whatwhere.errors import SettingError
from whatwhere.where.catalogue import (
    LAYER_OPTIONS,
    Scalar,
    join_options,
    layer_word,
    scalar,
    scalar_text,
    split_count,
    split_layers,
    split_options,
)

_TEST = "all runs of a comparison are tested alike"
FIXED: Mapping[str, str] = {
    "task": "it is what schemes are compared on",
    "lengths": _TEST,
    "trained": "lengths of training decide what is in length, and so what is tested",
    "test_sequences": _TEST,
    "device": "one comparison runs on one device, since another one rounds otherwise",
    "deterministic": "it is how all runs are computed",
    "betas": "it has two numbers",
}
"""Settings that cannot vary within a comparison, and why."""
_WORDS: Mapping[str, tuple[str, Scalar]] = {
    **{word: ("positions", word) for word in ("plain", "randomized", "random_offset")},
    **{word: ("direction", word) for word in ("decoder", "encoder")},
    **{word: ("table", word) for word in ("learned", "frozen", "onehot", "ids")},
    **{word: ("schedule", word) for word in ("cosine", "constant")},
    "tied": ("tied", True),
    "untied": ("tied", False),
}
"""Words that stand for a setting with its value."""
_DEFAULTS = {field.name: field.default for field in fields(Settings)}


def read_name(name: str) -> tuple[str, dict[str, Scalar]]:
    """Split "rotary@dim=16,tied,theta=5e5" into the scheme "rotary@theta=500000" and its settings."""
    varied: dict[str, Scalar] = {}
    layers = []
    for layer in name.split("/"):
        doors = []
        part, count = split_count(layer)
        for door in part.split("+"):
            entry, options = split_options(door)
            own: dict[str, Scalar | None] = {}
            for key, value in options.items():
                setting, chosen = (key, value) if value is not None else _word(key)
                if setting not in _DEFAULTS:
                    own[setting] = chosen
                elif setting in varied:
                    raise SettingError(f"{name!r} has the setting {setting} twice: write it once.")
                else:
                    varied[setting] = _normal(setting, chosen)
            doors.append(join_options(entry, dict(sorted(own.items()))))
        layers.append("+".join(doors) + (f"*{count}" if count > 1 else ""))
    return "/".join(layers), varied


def make_variants(
    scheme: str, vary: Mapping[str, Sequence[Any]] | None, settings: Settings, own: bool = False
) -> list[tuple[str, str, dict[str, Scalar]]]:
    """Cross a scheme with values of settings: of each variant the name, the scheme with its options, and the settings.

    The name of a scheme of the caller's own is not read. A value that is the comparison's own is left out, so that one
    thing has one name.
    """
    chosen = values_of(vary)
    base, written = (scheme, dict[str, Scalar]()) if own else read_name(scheme)
    if both := sorted(written.keys() & chosen.keys()):
        raise SettingError(f"{both[0]} is both varied and in the name {scheme!r}: leave one out.")
    variants = []
    for values in product(*chosen.values()):
        varied = written | dict(zip(chosen, values, strict=True))
        varied = {
            name: varied[name] for name in _DEFAULTS if name in varied and varied[name] != getattr(settings, name)
        }
        variants.append((write_name(base, varied), base, varied))
    return variants


def write_name(scheme: str, varied: Mapping[str, Scalar]) -> str:
    """Return the name of a scheme with settings, in the order of Settings: the opposite of `read_name`."""
    if not varied:
        return scheme
    parts = [_setting_text(name, varied[name]) for name in _DEFAULTS if name in varied]
    before, slash, last = scheme.rpartition("/")
    part, count = split_count(last)
    joined = f"{part}{',' if '@' in part.rpartition('+')[2] else '@'}{','.join(parts)}"
    return f"{before}{slash}{joined}{f'*{count}' if count > 1 else ''}"


def scheme_of(base: str, varied: Mapping[str, Scalar], vary: Mapping[str, Sequence[Any]] | None) -> str:
    """Return the scheme as it was requested, of a variant whose scheme and settings these are."""
    return write_name(base, {name: value for name, value in varied.items() if name not in (vary or {})})


def choose_settings(runs: Iterable[RunResult], vary: Mapping[str, Sequence[Any]]) -> tuple[SettingChoice, ...]:
    """Choose for each of several schemes the setting of the least held-out loss, by the mean over the seeds.

    None where there is nothing to choose, or no such loss.
    """
    losses: dict[str, dict[str, list[float]]] = {}
    for run in runs:
        settings = losses.setdefault(scheme_of(run.base, run.varied, vary), {})
        settings.setdefault(run.scheme, []).append(run.held_out[-1][1] if run.held_out else nan)
    means = {scheme: {name: fmean(each) for name, each in settings.items()} for scheme, settings in losses.items()}
    known = all(isfinite(mean) for each in means.values() for mean in each.values())
    if not known or len(means) < 2 or all(len(each) == 1 for each in means.values()):
        return ()
    return tuple(SettingChoice(scheme, min(each, key=each.__getitem__), each) for scheme, each in means.items())


def _word(word: str) -> tuple[str, Scalar]:
    if (of_layer := layer_word(word)) is not None:
        return of_layer
    if rank_of(word) is not None:
        return "table", word
    if word not in _WORDS:
        raise SettingError(f"{word!r} is not a setting: write name=value, or one of {', '.join(_WORDS)}, rank2.")
    return _WORDS[word]


def _setting_text(name: str, value: Scalar) -> str:
    words = (word for word, meant in _WORDS.items() if meant == (name, value) and type(meant[1]) is type(value))
    if name == "table" and isinstance(value, str) and rank_of(value) is not None:
        return value
    return next(words, f"{name}={scalar_text(value)}")


def values_of(vary: Mapping[str, Sequence[Any]] | None) -> dict[str, tuple[Scalar, ...]]:
    """Return the values of settings that vary, in their one form."""
    found = {}
    for name, values in (vary or {}).items():
        if isinstance(values, str) or not isinstance(values, Iterable):
            raise SettingError(f"vary got {name}={values!r}, but needs several values, as in {{'dim': [16, 64, 256]}}.")
        found[name] = tuple(_normal(name, value) for value in values)
        if not found[name] or any(value in found[name][:n] for n, value in enumerate(found[name])):
            raise SettingError(f"vary got {name}={list(values)!r}, but needs at least one value, each once.")
    return found


def _normal(name: str, value: object) -> Scalar:
    """Return a value of a setting in its one form; raise SettingError where the setting cannot vary."""
    if name not in _DEFAULTS:
        known = ", ".join(sorted(_DEFAULTS.keys() - FIXED.keys()))
        raise SettingError(f"{name!r} is not a setting of a comparison. What can vary: {known}.")
    if name in FIXED:
        raise SettingError(f"{name} cannot vary within one comparison: {FIXED[name]}. Make another comparison for it.")
    if not isinstance(value, bool | int | float | str):
        raise SettingError(f"vary got {name}={value!r}, but needs a number, a word, True or False.")
    plain = scalar(value) if isinstance(value, str) else value
    is_float = isinstance(_DEFAULTS[name], float)
    return float(plain) if is_float and isinstance(plain, int) and not isinstance(plain, bool) else plain


@dataclass(frozen=True)
class LayerKind:
    """What a layer of a model has: its schemes, without options of the layer; tokens that a query sees; sinks."""

    positions: str
    window: int | None = None
    chunk: int | None = None
    sink: bool = False

    @property
    def local(self) -> bool:
        """Whether it attends within a window or a chunk."""
        return self.window is not None or self.chunk is not None

    def __str__(self) -> str:
        """Return it as text, such as "rotary, 512 tokens, sinks"."""
        seen = f", {self.window} tokens" if self.window else f", chunks of {self.chunk}" if self.chunk else ""
        return self.positions + seen + (", sinks" if self.sink else "")


def layer_kinds(name: str, count: int) -> list[LayerKind]:
    """Return what each of so many layers has, of the scheme with this name."""
    try:
        kinds = [_kind(part) for part in split_layers(read_name(name)[0])]
    except SettingError:  # a scheme of the caller's own, whose name has no layers
        kinds = [LayerKind(name)]
    return [kinds[number % len(kinds)] for number in range(count)]


def _kind(part: str) -> LayerKind:
    doors, of_layer = [], dict[str, Scalar | None]()
    for door in part.split("+"):
        entry, options = split_options(door)
        of_layer |= {key: value for key, value in options.items() if key in LAYER_OPTIONS}
        doors.append(join_options(entry, {key: value for key, value in options.items() if key not in LAYER_OPTIONS}))
    sizes = {key: value for key in ("window", "chunk") if isinstance(value := of_layer.get(key), int)}
    return LayerKind("+".join(doors), **sizes, sink=bool(of_layer.get("sink")))
