"""The architecture: imports go down one list of layers, no circles, and every path is described."""

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
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
