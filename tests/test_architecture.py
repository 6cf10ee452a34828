"""The architecture: imports go down one list of layers, no circles, and every path is described."""

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from itertools import combinations
from pathlib import Path

import pytest

import whatwhere

PACKAGE = Path(whatwhere.__file__).parent
ROOT = PACKAGE.parents[1]
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
SCHEMES = ("where.input.", "where.query_key.", "where.score.")


def layers() -> list[str]:
    """Return the modules and packages in the order of ARCHITECTURE.md, the lowest first."""
    block = re.search(r"<!-- layers, lowest first -->\n```text\n(.*?)```", ARCHITECTURE, re.DOTALL)
    assert block is not None, "ARCHITECTURE.md has no list of layers"
    return [line.split()[0] for line in block.group(1).splitlines() if line.strip()]


@cache
def modules() -> dict[str, Path]:
    """Return every module below whatwhere, by its dotted name; a package is its __init__.py."""
    files = {path: path.relative_to(PACKAGE).with_suffix("").parts for path in PACKAGE.rglob("*.py")}
    return {".".join(parts).removesuffix(".__init__"): path for path, parts in files.items() if parts != ("__init__",)}


@cache
def imports() -> dict[str, frozenset[str]]:
    """Return what each module imports of ours, anywhere: at its top, inside functions, and for the type checker."""
    return {name: frozenset(_imported(path) - {name}) for name, path in modules().items()}


def _imported(path: Path) -> set[str]:
    result: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            targets = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        else:
            continue
        for target in targets:
            name = target.removeprefix("whatwhere.") if target.startswith("whatwhere.") else ""
            while name and name not in modules():
                name = name.rpartition(".")[0]
            result |= {name} - {""}
    return result


def layer_of(name: str) -> int:
    """Return the number of a module's layer: of the longest listed name that it begins with."""
    listed = layers()
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        if (prefix := ".".join(parts[:count])) in listed:
            return listed.index(prefix)
    raise AssertionError(f"{name} is in no layer: add it to the list in ARCHITECTURE.md")


def circles(edges: dict[str, frozenset[str]]) -> list[list[str]]:
    """Return the groups of modules that import each other, directly or through others."""

    def reached(start: str) -> set[str]:
        seen, left = set(), [start]
        while left:
            for following in edges[left.pop()] - seen:
                seen.add(following)
                left.append(following)
        return seen

    within = {name: reached(name) for name in edges}
    groups = {tuple(sorted({name, *(other for other in within[name] if name in within[other])})) for name in edges}
    return sorted(list(group) for group in groups if len(group) > 1)


def test_import_circles_are_detected() -> None:
    edges = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": set()}
    assert circles({name: frozenset(targets) for name, targets in edges.items()}) == [["a", "b", "c"]]


def test_no_files_import_each_other_in_a_circle() -> None:
    # A package's own __init__.py may list what is below it.
    assert not circles(imports())


@pytest.mark.parametrize("name", sorted(modules()))
def test_imports_go_down_the_layers(name: str) -> None:
    own = layer_of(name)
    upward = sorted(other for other in imports()[name] if layer_of(other) > own)
    assert not upward, f"{name} imports {upward}, which ARCHITECTURE.md lists above it"


def test_every_layer_is_there() -> None:
    assert not [name for name in layers() if name not in modules()]
    assert len(set(layers())) == len(layers())


@pytest.mark.parametrize("name", sorted(n for n in modules() if n.startswith(SCHEMES)))
def test_schemes_do_not_import_each_other(name: str) -> None:
    package, private = name.rpartition(".")[0], "_"
    others = {other for other in imports()[name] if other.startswith(SCHEMES)}
    assert all(other.startswith(f"{package}.{private}") for other in others), "schemes share only a private base"


def test_the_reference_imports_numpy_alone() -> None:
    files = sorted((PACKAGE / "reference").rglob("*.py"))
    assert files
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                top = name.split(".")[0]
                ours = name.startswith("whatwhere.reference")
                assert top == "numpy" or top in sys.stdlib_module_names or ours, f"{path} imports {name}"


def test_only_testing_imports_the_reference() -> None:
    users = {name for name, targets in imports().items() if any(t.startswith("reference") for t in targets)}
    assert all(name.startswith(("testing", "reference")) for name in users)


def limits() -> dict[str, tuple[int, int]]:
    """Return the most lines and files of each package, from the table in ARCHITECTURE.md; "" is whatwhere itself."""
    rows = re.findall(r"^\| ([a-z ]+) \| (\d+) \| (\d+) \|$", ARCHITECTURE, re.MULTILINE)
    names = {"files beside them": "", "all": "*"}
    return {names.get(name, name): (int(lines), int(files)) for name, lines, files in rows}


def size(package: str) -> tuple[int, int]:
    """Return the lines and files of a package, of the files beside the packages, or of all."""
    files = PACKAGE.glob("*.py") if package == "" else (PACKAGE / package.strip("*")).rglob("*.py")
    counts = [path.read_bytes().count(b"\n") for path in files]
    return sum(counts), len(counts)


@pytest.mark.parametrize("package", sorted({path.parent.name for path in PACKAGE.glob("*/__init__.py")} | {"", "*"}))
def test_packages_keep_to_their_lines(package: str) -> None:
    assert package in limits(), f"{package} is not in the table of lines in ARCHITECTURE.md"
    (lines, files), (most_lines, most_files) = size(package), limits()[package]
    assert lines <= most_lines
    assert files <= most_files


def test_the_table_of_lines_lists_what_is_there() -> None:
    assert all(size(package)[1] for package in limits())


def described() -> list[str]:
    """Return the folders of the tree in ARCHITECTURE.md, below src/whatwhere."""
    block = re.search(r"```text\nsrc/whatwhere/\n(.*?)```", ARCHITECTURE, re.DOTALL)
    assert block is not None, "ARCHITECTURE.md has no tree"
    result: list[str] = []
    parent = ""
    for line in block.group(1).splitlines():
        name, _, rest = line.strip().partition(" ")
        if not name.endswith("/"):
            continue
        if line.startswith("    "):
            result += (
                [parent + each for each in line.split() if each.endswith("/")]
                if not rest.startswith(" ")
                else [parent + name]
            )
        else:
            result, parent = [*result, name], name
    return result


def test_every_folder_is_in_the_tree() -> None:
    folders = {f"{path.parent.relative_to(PACKAGE)}/" for path in PACKAGE.rglob("*.py")} - {"./"}
    assert sorted(described()) == sorted(folders)


def test_the_architecture_is_short() -> None:
    assert len(ARCHITECTURE.splitlines()) <= 150


def definitions(tree: ast.Module | ast.ClassDef, prefix: str) -> Iterator[tuple[str, ast.AST]]:
    """Yield the public functions, classes and methods, without what is defined inside functions."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            marks = node.decorator_list
            if any(isinstance(mark, ast.Name) and mark.id == "overload" for mark in marks):
                continue  # the definition behind it has the docstring
            if any(isinstance(mark, ast.Attribute) and mark.attr == "setter" for mark in marks):
                continue  # so has the property
            yield f"{prefix}.{node.name}", node
            if isinstance(node, ast.ClassDef):
                yield from definitions(node, f"{prefix}.{node.name}")


@pytest.mark.parametrize("name", sorted(modules()))
def test_public_definitions_have_docstrings(name: str) -> None:
    tree = ast.parse(modules()[name].read_text(encoding="utf-8"))
    silent = [n for n, node in definitions(tree, name) if ast.get_docstring(node) is None]
    assert not silent


def dataclasses_of(trees: dict[str, ast.Module]) -> dict[str, tuple[list[str], set[str]]]:
    """Return the public dataclasses of modules with their fields and the names of their bases, both with inherited."""
    written: dict[str, tuple[list[str], list[str]]] = {}
    for module, tree in trees.items():
        for node in tree.body:
            if not isinstance(node, ast.ClassDef) or node.name.startswith("_"):
                continue
            if any("dataclass" in ast.unparse(mark) for mark in node.decorator_list):
                lines = [line.target for line in node.body if isinstance(line, ast.AnnAssign)]
                own = [line.id for line in lines if isinstance(line, ast.Name)]
                bases = [ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases]
                written[f"{module}.{node.name}"] = (own, bases)

    def inherited(name: str) -> tuple[list[str], set[str]]:
        own, bases = written[name]
        above = {other for base in bases for other in written if other.endswith(f".{base}") and other != name}
        parts = [inherited(other) for other in above]
        return [field for part in parts for field in part[0]] + own, above.union(*(part[1] for part in parts))

    return {name: inherited(name) for name in written}


def told_twice(trees: dict[str, ast.Module]) -> set[tuple[str, str]]:
    """Return the pairs of dataclasses of two packages that describe the same thing, by their fields.

    Such are two with equal fields; two of which one has three quarters of the other's, at least four; and two of one
    name that share half of them. A class and its base are not a pair, nor are two whose bases are one already.
    """
    known = dataclasses_of(trees)
    pairs = set()
    for one, other in combinations(sorted(known), 2):
        (first, above), (second, beyond) = known[one], known[other]
        if one.split(".")[0] == other.split(".")[0] or above & {other, *beyond} or one in beyond:
            continue
        common, fewer = len({*first} & {*second}), min(len({*first}), len({*second}))
        same_name = one.rpartition(".")[2] == other.rpartition(".")[2]
        if (
            ({*first} == {*second} and common >= 2)
            or (common >= 4 and common >= 0.75 * fewer)
            or (same_name and 0 < fewer <= 2 * common)
        ):
            pairs.add((one, other))
    bases = {name: {name, *known[name][1]} for name in known}
    return {
        (one, other)
        for one, other in pairs
        if not any((a, b) in pairs for a in bases[one] for b in bases[other] if (a, b) != (one, other))
    }


SUMMARY = "a view's answer, in which this is one part of a picture"
STORED = "written to a file of results, which keeps its format"
ALLOWED: dict[tuple[str, str], str] = {
    ("analysis.checkpoint_difference.ComparedTable", "studio.api.TableHeader"): SUMMARY,
    ("analysis.position_similarity.Fingerprint", "comparison.results.Fingerprint"): STORED,
    ("analysis.token_neighbors.TokenNeighbors", "studio.api.tokens.TokenNeighbors"): SUMMARY,
    ("analysis.walkthrough.AttentionScores", "studio.api.pipeline.TextWalkthrough"): SUMMARY,
}
"""Pairs that may stay alike, and why; a pair that is merged leaves the list."""


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("class Hubs:\n rows: int\n queries: int", "class HubRows:\n queries: int\n rows: int", True),
        (
            "class Norm:\n a: int\n b: int\n c: int\n d: int",
            "class Row:\n a: int\n b: int\n c: int\n d: int\n e: int",
            True,
        ),
        ("class Norm:\n a: int\n b: int", "class Norm:\n a: int\n c: int", True),
        ("class Norm:\n a: int\n b: int", "class Norm:\n c: int\n d: int", False),
        ("class Norm:\n a: int\n b: int\n c: int\n d: int", "class Row:\n a: int\n b: int\n e: int\n f: int", False),
        ("class Norm:\n a: int\n b: int", "class Row(Norm):\n c: int", False),
    ],
)
def test_a_thing_that_is_described_twice_is_detected(first: str, second: str, same: bool) -> None:
    trees = {name: ast.parse(f"@dataclass\n{text}") for name, text in (("one.a", first), ("other.b", second))}
    assert bool(told_twice(trees)) == same


def test_each_thing_has_one_type() -> None:
    found = told_twice({name: ast.parse(path.read_text(encoding="utf-8")) for name, path in modules().items()})
    assert not sorted(found - ALLOWED.keys()), "two packages describe the same thing: use one type"
    assert not sorted(ALLOWED.keys() - found), "these are no longer alike: take them off the list"
