"""The catalogue: one entry for each scheme, the one complete list of them, and how their names are read.

rotary@theta=500000 is the entry rotary with theta=500000, rotary@512*3/none three layers with a window of 512 and one
without positions.
"""

import ast
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from functools import partial
from inspect import getsource, signature
from pathlib import Path
from re import findall, sub
from textwrap import dedent
from types import FunctionType, MappingProxyType, ModuleType
from typing import Any

import torch

from whatwhere.checks import require_whole
from whatwhere.errors import SettingError, UnknownScheme
from whatwhere.initialization import seeded
from whatwhere.where.attention import Sink
from whatwhere.where.binding import Where
from whatwhere.where.catalogue.entries import ENTRIES
from whatwhere.where.catalogue.entry import Scheme as Scheme
from whatwhere.where.catalogue.entry import SchemeDescription, SchemeFacts

catalogue: Mapping[str, Scheme] = MappingProxyType({entry.name: entry for entry in ENTRIES})
ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "rope": "rotary",
        "nope": "none",
        "absolute": "learned",
        "pi": "rotary-linear",
        "ntk": "rotary-ntk",
        "dynamic-ntk": "rotary-dynamic-ntk",
        "yarn": "rotary-yarn",
        "longrope": "rotary-longrope",
        "llama3": "rotary-llama3",
    }
)
"""Other names of schemes. `absolute` is the learned table that Hugging Face's configurations call so."""

COMPOSED = ("ssmax", "temperature")
"""Entries that multiply queries, and compose with a map of queries and keys by `then`."""


LAYER_OPTIONS = ("window", "chunk", "sink")  # options that are those of a layer, not of a scheme
Scalar = bool | int | float | str
Build = Callable[..., Where | Sequence[Where]]
"""`build(dim, num_heads, max_length, **options)` -> the Where of all layers, or one for each layer."""
Builds = Build | Mapping[str, Build] | None
"""The function of a scheme of the caller's own, or those of a mixture by name."""


def canonical_name(name: str) -> str:
    """Return a name as the catalogue has it: aliases are replaced, in mixtures too; other names stay as they are."""
    return sub(r"(?<![^+/\s])[^+/@\s]+", lambda part: ALIASES.get(part[0].lower(), part[0]), name)


def scheme(
    name: str,
    dim: int,
    num_heads: int,
    max_length: int,
    *,
    generator: torch.Generator | None = None,
    builds: Mapping[str, Build] | None = None,
    **options: Any,
) -> Where:
    """Build a scheme by name, or a mixture such as "rotary+alibi" with one scheme at each door.

    Args:
        name: an entry of the catalogue, an alias such as "rope", or several joined by "+"; each may have options, as in
            "rotary@theta=500000". A number stands for a window, "rotary@512", and "sink" for attention sinks.
        dim: features of a token vector.
        num_heads: heads of the attention; must divide dim for schemes of queries, keys or scores.
        max_length: rows of schemes that learn a table; the trained length of schemes that have one.
        generator: random generator for parameters, which are made on its device, in the order of the name; None is
            PyTorch's global random state.
        builds: schemes of your own by name, functions `build(dim, num_heads, max_length, **options)` that return a
            Where; they are called with PyTorch's global random state.
        options: further settings of the scheme, such as theta=500_000.0, not for mixtures; or of the layer: window=,
            chunk=, sink=True.

    Returns:
        A Where with the scheme at its door.

    Raises:
        UnknownScheme: If the catalogue has no such entry.
        SettingError: If the scheme does not take these options, or two schemes of a mixture have the same door; or a
            function of your own does not take the sizes, or returns something else.

    Examples:
        >>> scheme("rotary", dim=64, num_heads=4, max_length=128)
        Where(query_key=Rotary(head_dim=16, theta=10000.0, interleaved=False, rotary_dim=16))
        >>> scheme("none@512,sink", dim=64, num_heads=4, max_length=128)
        Where(window=Window(512), sink=Sink(num_heads=4))
    """
    require_whole("scheme", dim=dim, num_heads=num_heads, max_length=max_length)
    if not isinstance(name, str):
        raise UnknownScheme(f"scheme takes a name, but got {name!r}.\nThe catalogue has: {', '.join(catalogue)}.")
    names = [part.strip() for part in canonical_name(name).split("+")]
    if len(names) > 1 and options.keys() - set(LAYER_OPTIONS):
        raise SettingError(
            f"options {sorted(options)} are ambiguous in the mixture {name!r}: build it with Where(...)."
        )
    parts, of_layer = [], {key: options.pop(key) for key in LAYER_OPTIONS if key in options}
    own, built = builds or {}, dict[str, Any]()
    for part in names:
        entry, given = _read_part(part, options, of_layer)
        parts.append((part, _own_entry(entry, own[entry]) if entry in own else entry_of(entry), given))
    # A map that multiplies queries composes with one that rotates, which is built first.
    for part, found, given in sorted(parts, key=lambda one: one[1].name in COMPOSED):
        composed = {"then": built["query_key"]} if found.name in COMPOSED and "query_key" in built else {}
        try:
            where = _built(found, (dim, num_heads, max_length), {**given, **composed}, generator)
        except TypeError as error:
            if found.name in own:
                raise
            raise SettingError(f"{part!r} does not take these options: {error}.") from error
        for place, attribute in _PLACES.items():
            if (there := getattr(where, attribute)) is None:
                continue
            if (place in built and not composed) or place in of_layer:
                two = f"schemes at the door {place!r}; each door" if attribute in _DOORS else f"{place}s; each layer"
                raise SettingError(f"the mixture {name!r} has two {two} takes one.")
            built[place] = there
    if of_layer.pop("sink", None):
        built["sink"] = Sink(num_heads, device=None if generator is None else generator.device)
    return Where(**built, **of_layer)


_DOORS = ("input", "query_key", "score")
_PLACES = {place: place for place in (*_DOORS, "window", "sink")} | {"scale": "_own_scale"}
"""What a Where is built from, and where it has it; entries of the catalogue have the doors alone."""


def build_layers(
    name: str, dim: int, num_heads: int, max_length: int, seed: int = 0, builds: Mapping[str, Build] | None = None
) -> list[Where]:
    """Build the Where of each layer that a name such as "rotary*3/none" describes; parameters depend on the seed alone.

    `builds` are schemes of the caller's own; the function of one may build several layers.
    """
    own, generator = builds or {}, torch.Generator().manual_seed(seed)
    words = [(name, 1)] if name in own else [split_count(part) for part in name.split("/")]
    layers: list[Where] = []
    with seeded(seed):
        for word, count in words:
            if word in own:
                layers += count * _build_own(word, own[word], dim, num_heads, max_length)
            else:
                layers += count * [scheme(word, dim, num_heads, max_length, generator=generator, builds=own)]
    return layers


def _build_own(name: str, build: Build, *sizes: int, **options: Any) -> list[Where]:
    """Call a function of the caller's own; return the Where of each layer that it builds."""
    try:
        signature(build).bind(*sizes, **options)
    except TypeError as problem:
        call = f"{name}({', '.join(['dim', 'num_heads', 'max_length', *options])})"
        raise SettingError(
            f"the scheme {name!r} is built by {call}, but its function takes {signature(build)}: {problem}.\n"
            f"Write it as def {call}: return whatwhere.Where(...)."
        ) from None
    built = build(*sizes, **options)
    parts = [built] if isinstance(built, Where) else list(built) if isinstance(built, Sequence) else []
    if not parts or not all(isinstance(part, Where) for part in parts):
        raise SettingError(
            f"the scheme {name!r} built {type(built).__name__}, but must build a Where, or a list of them.\n"
            "Return whatwhere.Where(...) with the scheme in it."
        )
    return parts


def _own_entry(name: str, build: Build) -> Scheme:
    def build_one(*sizes: int, **options: Any) -> Where:
        first, *more = _build_own(name, build, *sizes, **options)
        if more:
            raise SettingError(
                f"{name!r} builds {1 + len(more)} layers, but has options, or is mixed with others in one layer.\n"
                f"Mix whole layers, as in {name}/none."
            )
        return first

    return Scheme(name=name, door=None, formula="", paper="", url="", year=0, used_by=(), build=build_one)


def random_scheme(name: str, dim: int, num_heads: int, max_length: int, seed: int = 0, **options: Any) -> Where:
    """Build a scheme whose parameters depend on the seed only."""
    with seeded(scheme_seed(seed)):  # which schemes of the caller's own may sample with
        generator = torch.Generator().manual_seed(scheme_seed(seed))
        return scheme(name, dim, num_heads, max_length, generator=generator, **options)


def scheme_seed(seed: int) -> int:
    """Return the seed of a scheme's generator: not that of the tokens, so that all schemes have the same tokens."""
    return 2_000_003 + seed


def _read_part(part: str, options: dict[str, Any], of_layer: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    entry, own = split_options(part)
    read: dict[str, Any] = {}
    for key, value in own.items():
        word = layer_word(key) if value is None else None
        option, chosen = word or (key, value)
        if chosen is None:
            raise SettingError(f"the option {key!r} of {part!r} has no value: write it as {key}=....")
        if option in options or (option in LAYER_OPTIONS and option in of_layer):
            raise SettingError(f"the option {option} is given twice, one time in {part!r}: leave one out.")
        (of_layer if option in LAYER_OPTIONS else read)[option] = chosen
    return entry, {**read, **options}


def describe(entry: Scheme) -> SchemeDescription:
    """Return the facts of an entry without what builds it, as `schemes --json` prints them."""
    facts = {field.name: getattr(entry, field.name) for field in fields(SchemeFacts)}
    facts |= {name: getattr(entry, name) for name in ("shift_invariance", "length", "bibtex")}
    return SchemeDescription(**facts)


def _built(
    entry: Scheme, sizes: tuple[int, int, int], options: Mapping[str, Any], generator: torch.Generator | None
) -> Where:
    # With a generator, the global random state is not advanced.
    if generator is None or not entry.learned:
        return entry.build(*sizes, **options)
    where = entry.build(*sizes, **{**options, "device": "meta"})
    where.to_empty(device=options.get("device", generator.device)).reset_parameters(generator)
    return where


def entry_of(name: str) -> Scheme:
    """Return the entry of a name; raise UnknownScheme with the near ones where there is none."""
    if name in catalogue:
        return catalogue[name]
    near = dict.fromkeys(map(canonical_name, get_close_matches(name.lower(), [*catalogue, *ALIASES], n=3)))
    hint = f"Did you mean {' or '.join(near)}?\n" if near else ""
    raise UnknownScheme(f"the catalogue has no scheme {name!r}.\n{hint}It has: {', '.join(catalogue)}.")


def split_options(name: str) -> tuple[str, dict[str, Scalar | None]]:
    """Split a name such as "rotary@theta=500000" into its entry and its options."""
    entry, at, text = name.partition("@")
    options: dict[str, Scalar | None] = {}
    for part in text.split(",") if at else ():
        key, equals, value = (word.strip() for word in part.partition("="))
        if not key or (equals and not value):
            raise SettingError(f"the scheme {name!r} has an empty option: write them as in rotary@theta=500000.")
        if key in options:
            raise SettingError(f"the scheme {name!r} has the option {key} twice: write it once.")
        options[key] = scalar(value) if equals else None
    return entry.strip(), options


def split_layers(name: str) -> list[str]:
    """Split a mixture by layer into one name for each layer of its pattern."""
    return [part for one in name.split("/") for part, count in (split_count(one),) for _ in range(count)]


def entry_names(name: str) -> set[str]:
    """Return the entries of the layers and doors of a mixture, without options."""
    return {split_options(door)[0] for part in split_layers(name) for door in part.split("+")}


def split_count(part: str) -> tuple[str, int]:
    """Split a part of a mixture by layer into its scheme and the number of its layers."""
    scheme, star, count = part.partition("*")
    if not star:
        return scheme.strip(), 1
    if not count.strip().isdecimal() or not 1 <= int(count) <= 1000:
        raise SettingError(
            f"{part!r} has {count.strip()!r} layers, but needs a whole number from 1 to 1000, as in rotary*3/none."
        )
    return scheme.strip(), int(count)


def layer_word(word: str) -> tuple[str, Scalar] | None:
    """Return the option of a layer that a word stands for: a number is a window; None where it is another word."""
    if word.isdecimal():
        return "window", int(word)
    return ("sink", True) if word == "sink" else None


def join_options(entry: str, options: Mapping[str, Scalar | None]) -> str:
    """Return the name of an entry with options, in their order; the inverse of `split_options`."""
    parts = (key if value is None else f"{key}={scalar_text(value)}" for key, value in options.items())
    return f"{entry}@{','.join(parts)}" if options else entry


def scalar(text: str) -> Scalar:
    """Return the value that a text writes: true, false, a number or a word; whole numbers become int."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def scalar_text(value: Scalar) -> str:
    """Return the one way in which a value is written in a name."""
    if isinstance(value, bool | str):
        return str(value).lower() if isinstance(value, bool) else value
    exact = int(value) if float(value).is_integer() and abs(value) < 2**53 else value
    return repr(exact).replace("e+", "e")  # a plus joins schemes


# Schemes of the caller's own: their source is kept as text, which nothing runs, and compared with what is passed again


def require_builds(base: str, builds: Builds, sources: Mapping[str, str], results: Path) -> dict[str, Build]:
    """Return the caller's own functions of a scheme; raise SettingError where one is not passed, or has changed."""
    known = sources.keys() or (set(builds) if isinstance(builds, Mapping) else set()) or {base}
    names = {base} & known or entry_names(base) & known or {base}
    given = builds if isinstance(builds, Mapping) else {} if builds is None else dict.fromkeys(names, builds)
    for name in sorted(names):
        if name not in given:
            raise SettingError(
                f"the scheme {base!r} was built by a function of your own, which nothing runs unless it is passed: "
                f"--module FILE.py:{name}.\nIn Python: load_model(results, run, build={{{name!r}: {name}}}), or set "
                f"`builds` of whatwhere.read({str(results)!r}). Its source is kept as text in results.json."
            )
        if name in sources and code_lines(source_of(given[name])) != code_lines(sources[name]):
            raise SettingError(
                f"{name!r} is not what {results} was made with: the scheme has changed, or what it uses.\n"
                "Pass the one whose source is kept in results.json, or compare again, into a new folder."
            )
    return {name: given[name] for name in names}


def code_lines(source: str) -> list[str]:
    """Return the lines of a source without empty ones and comments."""
    return [line.rstrip() for line in source.split("\n") if line.strip() and not line.lstrip().startswith("#")]


def source_of(*built: object) -> str:
    """Return the source of functions and classes, and of all of the caller's own that they name, as text."""
    todo, found = list(built), dict[object, str]()
    while todo:
        each: Any = todo.pop()
        each = each if isinstance(each, type | FunctionType) else type(each)
        if each in found:
            continue
        try:
            code = found[each] = dedent(getsource(each)).rstrip()
        except (OSError, TypeError):  # typed into an interactive session
            found[each] = f"{each.__qualname__}: its source is not known"
            continue
        scope = vars(sys.modules[each.__module__]) if each.__module__ in sys.modules else {}
        for name in dict.fromkeys(findall(r"[^\W\d]\w*(?:\.[^\W\d]\w*)?", code)):
            first, _, attribute = name.partition(".")
            value = scope.get(first)
            of_module = isinstance(value, ModuleType) and is_own(value.__name__)
            name, value = (name, getattr(value, attribute, None)) if of_module else (first, value)
            while isinstance(value, partial):
                arguments = [*enumerate(value.args), *sorted(value.keywords.items())]
                found[f"{name}()"] = f"{name} = {[each for each in arguments if _is_plain(each[1])]!r}"
                todo += [each for _, each in arguments if isinstance(each, FunctionType) and is_own(each.__module__)]
                value = value.func
            if isinstance(value, type | FunctionType) and is_own(value.__module__):
                todo.append(value)
            elif not name.startswith("__") and _is_plain(value):
                found[name] = f"{name} = {value!r}"
    changed = set().union(*(_changed(text) for each, text in found.items() if not isinstance(each, str)))
    return "\n\n".join(text for each, text in found.items() if each not in changed)


_CHANGES = {"append", "extend", "insert", "add", "update", "setdefault", "pop", "clear"}


def _changed(code: str) -> set[str]:
    """Return the global values that code changes: what is remembered from call to call is not a setting."""
    changed, own, stated = set[str](), set[str](), set[str]()
    try:
        nodes = [*ast.walk(ast.parse(code))]
    except SyntaxError:  # of a lambda, say, the lines around it
        return changed
    for node in nodes:
        if isinstance(node, ast.Global):
            stated.update(node.names)
        elif isinstance(node, ast.arg):
            own.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            own.add(node.id)
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            changed.add(ast.unparse(node.value).partition("[")[0])
        elif isinstance(node, ast.Attribute):
            stores, method = isinstance(node.ctx, ast.Store), node.attr in _CHANGES
            changed |= {ast.unparse(node)} if stores else {ast.unparse(node.value)} if method else set()
    return changed - own | stated


def _is_plain(value: object) -> bool:
    """Return whether a value is written alike in every process: numbers and texts, and what is made of these."""
    parts = (*value, *value.values()) if isinstance(value, dict) else value
    if isinstance(parts, tuple | list):  # what is empty may be filled by what runs
        return (bool(value) or value == ()) and all(map(_is_plain, parts))
    return isinstance(value, bool | int | float | str)


def is_own(module: str) -> bool:
    """Return whether a module is neither Python's, nor PyTorch's or ours, nor that of an installed package."""
    top, file = module.partition(".")[0], getattr(sys.modules.get(module), "__file__", None)
    installed = {"site-packages", "dist-packages"} & {*Path(str(file)).parts}
    return top == "__main__" or not (installed or top in {"whatwhere", "torch", *sys.stdlib_module_names})
