"""Keys of a configuration: each one that affects positions is used or rejected, and none is ignored silently."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from enum import Enum
from math import inf, isclose
from numbers import Integral, Real
from reprlib import Repr
from typing import Any, TypeVar, cast

from whatwhere.errors import CheckpointError, SettingError

Json = Mapping[str, Any]
"""The JSON of a file that we did not write, such as config.json: types of values are checked where they are read."""

MATTERS = re.compile(
    r"\.|alibi|attention_chunk|attention_multiplier|attention_window|attn_scale|base_freq|embedding_multiplier|"
    "embedding_scale|^layer_types$|local_attention|logn|mscale|no_rope|ntk|per_layer_config|pos_att|pos_emb|"
    "(?<!com)position|query_pre_attn|relative|(?<!p)rope|rotary|scale_attn|scale_emb|scaling|sinusoid|sliding_window|"
    "softmax_scale|temperature_tuning|theta|yarn|bidirectional|(^|_)causal$"
)
"""Parts of the names of keys that may affect positions, attention or token vectors; a dot is in keys of GGUF alone."""

ELSEWHERE = (
    "logits_scaling", "moe_routed_scaling_factor", "moe_router_scaling_factor", "mtp_loss_scaling_factor",
    "routed_scaling_factor", "router_scaling_factor", "scale_attention_softmax_in_fp32", "transformers.js_config",
    "v_head_dim",
)  # fmt: skip
"""Keys with such names that concern experts, logits, values, precision or other programs instead."""

OFF = (
    "attn_temperature_tuning", "position_embedding_xdrope", "rope_scaling", "rotary_value",
    "scale_attn_by_inverse_layer_idx", "use_dynamic_ntk", "use_logn_attn", "use_mrope", "use_scaled_rope",
    "use_sliding_window", "use_yarn",
)  # fmt: skip
"""Flags that have no effect when false, in model types that do not have them. Other flags may have one, such as
`use_rope`, so false is not ignored there."""

ORDINARY = re.compile(
    r"^_|^(architectures|auto_map|bias|chunk_size_feed_forward|dtype|torch_dtype|head_bias|language|max_length|"
    r"name_or_path|pretraining_tp|problem_type|transformers_version|use_cache|use_bias|attn_implementation)$|"
    r"_token_ids?$|token_index$|aux|dropout|pdrop|drop_rate|_act$|act_fn|activation|eps(ilon)?$|experts?(_|$)|ffn|"
    r"feed_?forward|finetuning|initiali[sz]|init_std|intermediate|label|loss|mlp|moe|n_inner|(?<!deep)norm|"
    r"^output_|^return_dict|attention_bias|qkv_bias|proj_bias|lm_head_bias|quantization|rescale_logits|router|softcap|"
    r"sparsity|temperature$|tokenizer|^task_specific|^top_|torchscript|typical_p|use_bfloat16|generation"
)
"""Names of keys that do not concern positions, attention spans or layer types."""


class Required(Enum):
    """The default of a key that has none."""

    REQUIRED = "required"


REQUIRED = Required.REQUIRED
NOTHING: Mapping[str, Any] = {}
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
ANY = object()  # any value, of a key that is not read
MAX_WHOLE = 2**62  # the largest whole number that is read, for keys without a bound of their own

_SEPARATOR = re.compile("[-_.]")
_NEARLY = 0.9  # similarity from which on a long key counts as a misspelling of another

_SHORT = Repr()
_SHORT.maxdict, _SHORT.maxlist, _SHORT.maxtuple, _SHORT.maxlong, _SHORT.maxstring, _SHORT.maxother = 8, 8, 8, 60, 80, 80


class Keys:
    """Read the values of a configuration, or of a dictionary at a path in it, and record which keys were read.

    `owner` is the model type, for messages; `aliases` are further names of keys; `way_out` is that of a key which is
    unwanted, where the values are not a dictionary from which it can be removed.
    """

    def __init__(
        self,
        values: Json,
        defaults: Mapping[str, object],
        owner: str,
        path: str = "",
        aliases: Mapping[str, str] = NOTHING,
        way_out: str | None = None,
    ) -> None:
        self.way_out = way_out
        self.values, self.defaults, self.owner, self.path, self.aliases = values, defaults, owner, path, aliases
        self.known: set[str] = set()  # every key that was looked up
        self.used: dict[str, None] = {}  # keys that were present, in the order in which they were read
        self.assumed: dict[str, None] = {}  # defaults that were used for absent keys

    def take(self, *names: str, default: Any = REQUIRED) -> Any:
        """Return the value of a key under any of its names, the usual one first, which must agree.

        An absent key has the default of transformers, or else the caller's; null has the caller's, if there is one.
        """
        names = (*names, *(alias for alias, key in self.aliases.items() if key in names))
        self.known |= set(names)
        present = {name: self.values[name] for name in names if self.values.get(name) is not None}
        if present:
            name, value = next(iter(present.items()))
            if not all(equal_values(value, other) for other in list(present.values())[1:]):
                raise SettingError(
                    f"this configuration of {self.owner!r} has {len(present)} names of one key, with different values: "
                    + ", ".join(f"{self.path}{name}={short_repr(value)}" for name, value in present.items())
                    + ".\nKeep one of them."
                )
            self.used[self.path + name] = None
            return value
        name = next((name for name in names if name in self.defaults), names[0])
        null = any(name in self.values for name in names) and default is not REQUIRED
        value = default if null else self.defaults.get(name, default)
        if value is REQUIRED:
            raise CheckpointError(
                f"this configuration of {self.owner!r} has no {self.path}{names[0]}, which has no default."
                + near(names[0], (key for key in self.values if key not in self.known))
            )
        if value is not None:
            self.assume(name, value)
        return value

    def whole(self, *names: str, default: T | Required = REQUIRED, least: int = 1, most: int = MAX_WHOLE) -> int | T:
        """Return a whole number from `least` to `most`, or None if that is the default."""
        value = self.take(*names, default=default)
        if value is None:
            return cast("T", value)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        size = int(value) if isinstance(value, Integral) and not isinstance(value, bool) else least - 1
        if size < least:
            raise self.wrong(self._present(names), value, f"must be a whole number of at least {least}.")
        if size > most:
            text = f"{size:,}" if size < 10**30 else short_repr(size)
            raise SettingError(f"{self.path}{self._present(names)} is {text}, but at most {most:,} are read.")
        return size

    def number(self, *names: str, default: T | Required = REQUIRED, zero: bool = False) -> float | T:
        """Return a finite number above zero, or None if that is the default; `zero` allows 0 too."""
        value = self.take(*names, default=default)
        if value is None:
            return cast("T", value)
        return 0.0 if zero and equal_values(value, 0) else self._number(self._present(names), value)

    def _number(self, name: str, value: Any) -> float:
        number: Any = value if isinstance(value, Real) and not isinstance(value, bool) else -inf
        if not 0 < number < inf:
            raise self.wrong(name, value, "must be a finite number above 0.")
        if not 1e-30 <= number <= 1e30:  # beyond, powers overflow
            raise self.wrong(name, value, "only numbers from 1e-30 to 1e30 are read.")
        return float(number)

    def numbers(self, name: str, most: int) -> tuple[float, ...]:
        """Return a list of finite numbers above zero."""
        return tuple(self._number(f"{name}[{n}]", value) for n, value in enumerate(self.listed(name, most)))

    def listed(self, name: str, most: int, default: T | Required = REQUIRED) -> Sequence[Any] | T:
        """Return a list of at most `most` entries, or None if that is the default."""
        values = self.take(name, default=default)
        if values is not None and not isinstance(values, list | tuple):
            raise self.wrong(name, values, "must be a list.")
        if values is not None and len(values) > most:
            raise SettingError(f"{self.path}{name} has {len(values):,} entries, but at most {most:,} are read.")
        return cast("Sequence[Any] | T", values)

    def require_each(self, name: str, listed: Sequence[Any], fits: Callable[[Any], bool], needed: str) -> None:
        """Raise SettingError unless all entries of a list are as needed, such as `must be 0 or 1.`"""
        for index, value in enumerate(listed):
            if not fits(value):
                raise self.wrong(f"{name}[{index}]", value, needed)

    def flag(self, *names: str, default: bool | Required = REQUIRED) -> bool:
        """Return the value of a flag."""
        value = self.take(*names, default=default)
        if not isinstance(value, bool):
            raise self.wrong(self._present(names), value, "must be true or false.")
        return value

    def choice(self, name: str, choices: Iterable[str], default: str) -> str:
        """Return one of several strings."""
        value = self.take(name, default=default)
        if not isinstance(value, str) or value not in choices:
            hint = near(value, choices) if isinstance(value, str) else ""
            raise self.wrong(name, value, f"whatwhere reads only: {', '.join(choices)}.{hint}")
        return value

    def require(self, name: str, expected: object, reason: str) -> None:
        """Raise SettingError unless a key is absent or has the only value that can be read."""
        value = self.take(name, default=expected)
        if not equal_values(value, expected):
            raise self.wrong(name, value, f"whatwhere reads {self.owner!r} with {expected!r} only: {reason}")

    def wrong(self, name: str, value: object, needed: str) -> SettingError:
        """Return the error of a value that is not as needed."""
        return SettingError(f"{self.path}{name} is {short_repr(value)}, but {needed}")

    def missing(self, name: str, why: str) -> SettingError:
        """Return the error of a key that is needed for a reason."""
        return SettingError(f"{self.path}{name} is missing: {why}.")

    def inside(self, name: str, default: Json | Required = REQUIRED) -> "Keys":
        """Return a reader of a nested dictionary, which records in the same lists what was used and assumed."""
        values = self.take(name, default=default)
        if not isinstance(values, Mapping):
            raise self.wrong(name, values, "must be a dictionary.")
        return self.nested(f"{name}.", values)

    def nested(self, path: str, values: Json) -> "Keys":
        """Return a reader of a dictionary at a path, which records in the same lists what was used and assumed."""
        inner = Keys(values, {}, self.owner, self.path + path, way_out=self.way_out)
        inner.used, inner.assumed = self.used, self.assumed
        return inner

    def assume(self, name: str, value: object) -> None:
        """Record the default that was used for an absent key."""
        self.assumed[f"{self.path}{name}={value!r}"] = None

    def finish(
        self, accepted: Iterable[str] = (), repeated: Mapping[str, Sequence[object]] = NOTHING, every: bool = False
    ) -> None:
        """Raise SettingError if a key was not read that affects positions (or any with `every`), or is misspelled."""
        # `accepted` are keys of the type that its code does not read; `repeated` has the values by which keys agree.
        accepted = self.known | {*accepted} | (set() if every else {*ELSEWHERE})
        suspected = []
        for name, value in self.values.items():
            # transformers writes some keys for internal use with a leading underscore
            if value is None or name in accepted or name.lstrip("_") in accepted:
                continue
            if name in repeated:
                self._require_agreement(name, value, repeated[name])
            elif every or affects_positions(name, value):
                suspected.append(name)
            else:
                self.refuse_misspelling(name, value)
        if suspected:
            self.refuse(*suspected)

    def finish_like(self, like: str, evidence: tuple[str, ...], accepted: Iterable[str]) -> None:
        """Raise SettingError for keys that the model type `like` does not know, or if no key shows positions."""
        # `evidence` are parts of names, one of which must occur in a key that was read; empty if none is needed.
        if evidence and not any(part in key for key in self.used for part in evidence):
            raise SettingError(
                f"no key of this configuration of {self.owner!r} shows that queries and keys are rotated, as in "
                f"{like!r}: its theta would be invented.\nIf you know it, state it: from_huggingface({{**config, "
                f"'rope_theta': 10_000.0}}, like={like!r})."
            )
        known = {"model_type", *self.known, *ELSEWHERE, *accepted}
        unknown = {name: v for name, v in self.values.items() if v and name not in known}
        unknown = {name: value for name, value in unknown.items() if not ORDINARY.search(name.lower())}
        if unknown:
            raise SettingError(
                f"{', '.join(f'{self.path}{name}={short_repr(value)}' for name, value in unknown.items())}: not among "
                f"the keys of {like!r} that whatwhere knows, so {self.owner!r} may not be like it; such keys can "
                "decide which layers attend, and to what.\nIf they do not, leave them out: {key: value for key, value "
                f"in config.items() if key not in {tuple(unknown)}}}. Else build this model from its parts: Rotary, "
                "ALiBi, Learned, Where."
            )

    def _require_agreement(self, name: str, value: object, expected: Sequence[object]) -> None:
        """Raise SettingError unless a value is one of those expected; numbers may differ by rounding."""

        def agrees(one: object) -> bool:
            numbers = [each for each in (value, one) if isinstance(each, int | float) and not isinstance(each, bool)]
            near = len(numbers) == 2 and max(map(abs, numbers)) < 1e300 and isclose(*numbers, rel_tol=1e-9)
            return one is ANY or equal_values(value, one) or near

        if not any(map(agrees, expected)):
            read = " or ".join(short_repr(one) for one in expected) or "something else"
            needed = (
                f"the code of {self.owner!r} does not read the key, and by those that it reads it would be {read}: "
                "they contradict each other."
            )
            way = f"If these are right, remove it: config.pop({name!r}). Else this is a different model."
            raise self._unwanted(str(self.wrong(name, value, needed)), way)

    def _unwanted(self, found: str, way: str) -> SettingError:
        """Return the error of keys that may be removed, as `way` says, from a dictionary."""
        return SettingError(f"{found}\n{self.way_out or way}")

    def refuse(self, *names: str) -> None:
        """Raise SettingError for unknown keys."""
        name, *more = names
        way = f"If it has no effect, remove it: config.pop({name!r})."
        if more:
            way = f"Those that have no effect, remove: for key in {names}: config.pop(key)."
        raise self._unwanted(
            f"{', '.join(f'{self.path}{each}={short_repr(self.values[each])}' for each in names)} "
            f"{'are not keys' if more else 'is not a key'} of {self.owner!r} that whatwhere knows, but "
            f"{'their names suggest' if more else 'its name suggests'} positions: ignoring "
            f"{'them' if more else 'it'} could change every score.{'' if more else near(name, self.known)}",
            way,
        )

    def refuse_misspelling(self, name: str, value: object) -> None:
        """Raise SettingError if a key is a misspelling of one that was read, and has another value."""
        key = misspelled_key(name, self.known)
        if key is not None and not equal_values(self.values.get(key), value):
            raise self._unwanted(
                f"{self.path}{name}={short_repr(value)} is not a key of {self.owner!r}, but almost {key!r}, which is "
                f"read: ignoring a misspelled key would change the model silently.",
                f"Did you mean {key!r}? If it is another matter, remove it: config.pop({name!r}).",
            )

    def _present(self, names: tuple[str, ...]) -> str:
        """Return the name that the configuration uses."""
        return next((name for name in names if self.values.get(name) is not None), names[0])


def near(name: str, names: Iterable[str]) -> str:
    """Return the question whether a similar name was meant; empty without one."""
    found = get_close_matches(name, list(names), n=1, cutoff=0.7)
    return f"\nDid you mean {found[0]!r}?" if found else ""


def named(*functions: F) -> dict[str, F]:
    """Return functions by the names that the data file has for them: `_gpt2` is gpt2, and `read_rope` rope."""
    return {each.__name__.removeprefix("_").removeprefix("read_"): each for each in functions}


def affects_positions(name: str, value: object) -> bool:
    """Return whether a key may affect positions: null never does, nor false of a flag in OFF, nor is_causal=true."""
    if value is None or (value is False and name in OFF) or (value is True and name == "is_causal"):
        return False
    return MATTERS.search(name.lower()) is not None


def misspelled_key(name: str, keys: Iterable[str]) -> str | None:
    """Return the key that a name misspells by one letter, two swapped letters, case or plural; long keys by more."""
    keys = sorted(keys)
    letters = _SEPARATOR.sub("", name.lower())
    one = next((key for key in keys if _one_edit_apart(letters, _SEPARATOR.sub("", key.lower()))), None)
    near = get_close_matches(name, [key for key in keys if len(key) > 12], n=1, cutoff=_NEARLY)
    return one or (near[0] if near else None)


def _one_edit_apart(a: str, b: str) -> bool:
    if abs(len(a) - len(b)) > 1:
        return False
    while a and b and a[0] == b[0]:
        a, b = a[1:], b[1:]
    while a and b and a[-1] == b[-1]:
        a, b = a[:-1], b[:-1]
    return max(len(a), len(b)) <= 1 or (len(a) == 2 and a == b[::-1])


def equal_values(a: Any, b: Any) -> bool:
    """Return whether two values of a configuration are equal: 4 is 4.0, but 1 is not true."""
    return isinstance(a, bool) == isinstance(b, bool) and bool(a == b)


def short_repr(value: object) -> str:
    """Return the repr of a value, short enough for a message."""
    try:
        return _SHORT.repr(value)
    except ValueError:  # Python writes no whole number of more than 4,300 digits
        return f"{type(value).__name__} of more digits than can be shown"
