"""One word for one thing, and the field's: words that readers of other libraries would not know do not come back."""

import ast
import inspect
import re
import subprocess
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

import whatwhere

ROOT = Path(__file__).parents[1]
FOLDERS = (
    "src",
    "docs",
    "README.md",
    "CONTRIBUTING.md",
    "ARCHITECTURE.md",
    "examples",
    "benchmarks",
    "experiments",
    "hatch_build.py",
    "hatch_page.py",
)
SUFFIXES = (".py", ".ts", ".tsx", ".md", ".cpp", ".h")

BANNED: dict[str, tuple[str, str, tuple[str, ...]]] = {
    r"rulers?": ("the ruler of a batch", "positions", ()),
    r"(?<![.`])readouts?(?![(`:.]| =)": (
        "the readout is tied",
        "output projection; only the method is `readout`",
        ("src/whatwhere/reference/",),
    ),
    r"twins?": ("its plain twin in PyTorch", "PyTorch implementation", ()),
    r"unwell|(?:un)?healthy|ill rows?": ("healthy rows", "under-trained, duplicate, zero, NaN or hub tokens", ()),
    r"never trained": ("rows that were never trained", "under-trained", ()),
    r"(?<!gc\.)(?<!gc\.get_)(?:un)?(?:freez(?:e|es|ing)|froze|frozen)(?!=True| dataclass| rows?\b|[\"`,:])": (
        "a frozen page",
        "export, exported",
        ("src/whatwhere/what/embedding.py",),  # an argument of nn.Embedding
    ),
    r"knobs?": ("turn a knob", "parameter", ()),
    r"exams?": ("the exam has 1000 questions", "test set", ()),
    r"stretch(?:es|ed)?": ("a stretch of the file", "byte range, or contiguous run of tokens", ()),
    r"drawn anew": ("it is drawn anew", "sampled again", ()),
    r"kinds? of tokens?": ("each kind of token", "token types", ()),
    r"same command goes on": ("Interrupted, the same command goes on.", "run the same command again to resume", ()),
    r"in silence": ("keys passed over in silence", "ignored silently", ()),
    r"half[_-]split": ("layout='half_split'", "half: rotate_half, NeoX", ()),
    r"told(?! apart)": ("def bind(told): ...", "what it is: settings, message, text, query", ()),
    r"asked for": ("the rows that were asked for", "requested, looked up", ()),
    r"meetings?": ("the meeting of two tokens", "attention score, dot product", ()),
    r"rows? (?:may be|are) behind": ("Rows may be behind until they are read.", "updated when they are next read", ()),
    r"says? nothing of": ("ALiBi says nothing of keys later than the query.", "supports causal attention only", ()),
    r"bears? on": ("every key that bears on position", "affects", ()),
    r"trembl(?:es|ing)": ("drawn each time: it trembles", "one random batch per point, so the curve is noisy", ()),
    r"cache of keys": ("left padding or a cache of keys", "KV cache", ()),
    r"lead, not a proof": ("an order of schemes is a lead, not a proof", "too few seeds: treat it as a hint", ()),
    r"none is none": ("another map; None is none.", "None for no such map", ()),
    r"only other positions": ("Packed documents are only other positions.", "for packing you pass different ones", ()),
    r"where (?:a|the|each) token stands": ("It says where a token stands.", "position", ()),
}
"""Each word, as a regular expression: a line that must be found, what to write instead, and where it is fine."""

FINE = (
    "@dataclass(frozen=True, eq=False)",
    "a frozen dataclass",
    "frozen rows of the embedding",
    "table=learned, frozen, onehot",
    "logits = tokens.readout(hidden)",
    "two tokens cannot be told apart",
    "gc.freeze()",
    "gc.get_freeze_count()",
)
"""Lines in which nothing is found."""

DOCSTRING_VERBS = ("Give", "Tell", "Say", "Hold", "Ask", "Let")
"""Return, return whether, describe, store, request and allow are what a docstring opens with instead."""

WITHOUT_ARGS = {  # and why
    "Checkpoint": "it is opened, not constructed",
    "Here": "Where.at makes it",
    "InputEncoding": "abstract",
    "KVCache": "Where.cache makes it",
    "Positions": "its attributes are listed instead",
    "QueryKeyMap": "abstract",
    "ScoreBias": "abstract",
}
TENSOR_OPTIONS = {"device", "dtype"}
"""Of every module in PyTorch, so not described by each of ours."""


@cache
def pattern(word: str) -> re.Pattern[str]:
    """Return the pattern of a whole word, also as a part of an identifier; a phrase may go on in the next line."""
    return re.compile(rf"(?<![A-Za-z])(?:{word})(?![A-Za-z])".replace(" ", r"\s+"), re.IGNORECASE)


@cache
def texts() -> dict[str, str]:
    """Return the text of each file that users and contributors read."""
    listing = subprocess.run(["git", "ls-files", *FOLDERS], cwd=ROOT, capture_output=True, text=True, check=False)
    names = [name for name in listing.stdout.split() if name.endswith(SUFFIXES) and (ROOT / name).is_file()]
    if not names:
        pytest.skip("this is not a checkout")
    return {name: (ROOT / name).read_text(encoding="utf-8") for name in names}


@pytest.mark.parametrize("word", BANNED)
def test_words_that_readers_do_not_know_are_not_used(word: str) -> None:
    _, instead, fine = BANNED[word]
    found = [
        f"{name}:{text.count(chr(10), 0, match.start()) + 1}"
        for name, text in texts().items()
        if not name.startswith(fine or "\n")
        for match in pattern(word).finditer(text)
    ]
    assert not found, f"write instead: {instead}"


@pytest.mark.parametrize("word", BANNED)
def test_each_word_is_found(word: str) -> None:
    assert pattern(word).search(BANNED[word][0])
    assert not [line for line in FINE if pattern(word).search(line)]


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Yield each docstring with its line."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield getattr(node, "lineno", 1), text


def opens_badly(text: str) -> bool:
    """Return whether a docstring opens with one of the verbs."""
    return text.split(maxsplit=1)[0].strip(".,:").removesuffix("s") in DOCSTRING_VERBS


def test_bad_openings_are_found() -> None:
    source = '"""Read files."""\ndef f():\n    """Gives the rows."""\ndef g():\n    """Tell whether it fits."""'
    assert [line for line, text in docstrings(source) if opens_badly(text)] == [2, 4]
    source = "/** Rows. */\n/** Give the rows. */\n/**\n * Tells whether it fits,\n * or not.\n */\n"
    assert [line for line, text in comments(source) if opens_badly(text)] == [2, 3]


def comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield each doc comment of TypeScript with its line."""
    for match in re.finditer(r"/\*\*\s*(?:\*\s*)?(\w.*?)\*/", source, re.DOTALL):
        yield source.count("\n", 0, match.start()) + 1, match[1]


def test_docstrings_open_with_the_fields_verbs() -> None:
    found = [
        f"{name}:{line}: {text.splitlines()[0]}"
        for name, source in texts().items()
        if name.endswith((".py", ".ts", ".tsx"))
        for line, text in (docstrings if name.endswith(".py") else comments)(source)
        if opens_badly(text)
    ]
    assert not found


def callables() -> dict[str, object]:
    """Return the public classes and functions by name: of whatwhere, its analysis, its errors, its rules and curves."""
    result = {name: getattr(whatwhere, name) for name in whatwhere.__all__}
    result |= {f"analysis.{name}": getattr(whatwhere.analysis, name) for name in whatwhere.analysis.__all__}
    result |= {f"errors.{name}": value for name, value in vars(whatwhere.errors).items() if isinstance(value, type)}
    for module, base in (
        (whatwhere.scaling, whatwhere.scaling.Scaling),
        (whatwhere.temperature, whatwhere.temperature.Curve),
    ):
        values = {name: value for name, value in vars(module).items() if isinstance(value, type)}
        result |= {f"{module.__name__}.{name}": value for name, value in values.items() if issubclass(value, base)}
    return {name: value for name, value in result.items() if callable(value)}


def missing_parts(name: str, value: object) -> list[str]:
    """Return what the docstring of a public class or function lacks."""
    text = inspect.getdoc(value) or ""
    if isinstance(value, type) and issubclass(value, Exception):
        return [] if text else ["a docstring"]
    assert callable(value)
    signature = inspect.signature(value)
    lacking = []
    if name not in WITHOUT_ARGS and signature.parameters:
        described = text.partition("Args:")[2].split("\n\n")[0]
        known = set(re.findall(r"\w+", described)) | TENSOR_OPTIONS
        lacking += [f"Args: {each}" for each in signature.parameters if each not in known and each != "unsupported"]
    returns = not isinstance(value, type) and signature.return_annotation not in (None, "None")
    if returns and "Returns:" not in text and not text.startswith(("Return ", "Compute with ", "Show ")):
        lacking.append("Returns:")
    if "Examples:" not in text and not inspect.isabstract(value) and name not in WITHOUT_ARGS:
        lacking.append("Examples:")
    return lacking


@pytest.mark.parametrize("name", sorted(callables()))
def test_public_callables_are_documented(name: str) -> None:
    assert not missing_parts(name, callables()[name])


def raised(function: Callable[..., object]) -> set[str]:
    """Return the errors of whatwhere that a function itself raises, without those of what it calls."""
    names, nodes = set(), list(ast.parse(textwrap.dedent(inspect.getsource(function))).body[0].body)  # type: ignore[attr-defined]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            names.add(ast.unparse(node.exc.func).rpartition(".")[2])
        if not isinstance(node, ast.FunctionDef | ast.Lambda):
            nodes.extend(ast.iter_child_nodes(node))
    return names & vars(whatwhere.errors).keys()


def raises(text: str) -> list[tuple[str, str]]:
    """Return the errors of a docstring's `Raises:` section, each with the first line of its sentence."""
    entries: list[tuple[str, str]] = []
    for line in inspect.cleandoc(text).partition("\nRaises:\n")[2].splitlines():
        if not line.startswith("    "):
            break
        if line[4] != " ":
            errors, _, sentence = line.strip().partition(": ")
            entries.append((errors, sentence))
    return entries


def unnamed_errors(value: object) -> list[str]:
    """Return what a public function, or a class in its constructor and public methods, raises without naming it."""
    parts = [("", value)]
    if isinstance(value, type):
        parts = [
            part for each in value.__mro__ if each.__module__.startswith("whatwhere") for part in vars(each).items()
        ]
    unnamed = []
    for name, part in parts:
        function = inspect.unwrap(
            getattr(part, "fget", None) or getattr(part, "func", None) or getattr(part, "__func__", part)
        )
        constructs = name in ("__init__", "__post_init__")
        if not inspect.isfunction(function) or not Path(function.__code__.co_filename).is_file():  # a dataclass's own
            continue
        if constructs or not name.startswith("_"):
            text = inspect.getdoc(value if constructs or not name else getattr(value, name)) or ""
            named = {each for errors, _ in raises(text) for each in errors.split(", ")}
            unnamed += [f"{function.__qualname__}: {error}" for error in sorted(raised(function) - named)]
    return unnamed


@pytest.mark.parametrize("name", sorted(callables()))
def test_errors_are_documented_where_they_are_raised(name: str) -> None:
    assert not unnamed_errors(callables()[name])


def test_missing_documentation_is_found() -> None:
    class Table:
        """Store rows.

        Args:
            rows: how many.
        """

        def __init__(self, rows: int, scale: float) -> None:
            if not rows:
                raise whatwhere.errors.ShapeError("no rows")

    Table.__module__ = "whatwhere.table"
    assert missing_parts("Table", Table) == ["Args: scale", "Examples:"]
    assert [each.rpartition(".")[2] for each in unnamed_errors(Table)] == ["__init__: ShapeError"]


def test_a_condition_follows_each_error() -> None:
    found = [
        f"{name}:{line}: {errors}: {sentence}"
        for name, source in texts().items()
        if name.endswith(".py")
        for line, text in docstrings(source)
        for errors, sentence in raises(text)
        if not sentence.startswith(("If ", "When ", "As "))
    ]
    assert not found
