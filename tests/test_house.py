"""The house: imports go downward, schemes do not know each other, every room is told of."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import whatwhere

PACKAGE = Path(whatwhere.__file__).parent
FLOORS = {
    "errors": 0,
    "checks": 0,
    "ruler": 0,
    "drawn": 0,
    "terminal": 0,
    "kernels": 0,
    "where.frequencies": 0,
    "where.precision": 0,
    "where.content": 1,
    "where.doors": 1,
    "where.interpolation": 1,
    "where.rotation": 1,
    "where.scaling": 1,
    "what": 1,
    "where.input": 2,
    "where.query_key": 2,
    "where.score": 2,
    "attention": 3,
    "where.shared": 4,
    "where.binding": 4,
    "where.catalogue": 4,
    "layer": 4,
    "analysis": 5,
    "interop": 5,
    "page": 5,
    "testing": 5,
    "comparison": 6,
    "benchmark": 6,
    "inspection": 6,
    "studio": 6,
    "cli": 7,
    "__main__": 7,
}
SCHEMES = ("where.input", "where.query_key", "where.score")


def modules() -> dict[str, Path]:
    """Give every module of the library by its name below whatwhere."""
    return {
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
        for path in PACKAGE.rglob("*.py")
        if path != PACKAGE / "__init__.py"
    }


def floor(name: str) -> int | None:
    """Give the floor of a module, by the longest name that is listed."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        if (found := FLOORS.get(".".join(parts[:count]))) is not None:
            return found
    return None


def imported(path: Path) -> set[str]:
    """Give the modules of ours that a file imports anywhere, below whatwhere."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "whatwhere":
            base = node.module.removeprefix("whatwhere").strip(".")
            names = {f"{base}.{alias.name}".strip(".") for alias in node.names}
            known = modules()
            found |= {name if name in known else base for name in names} - {""}
        if isinstance(node, ast.Import):
            found |= {a.name.removeprefix("whatwhere.") for a in node.names if a.name.startswith("whatwhere.")}
    return found


@pytest.mark.parametrize("name", sorted(n for n in modules() if n != "where" and not n.startswith("reference")))
def test_imports_go_downward(name: str) -> None:
    own = floor(name)
    assert own is not None, f"{name} stands on no floor: list it here and in ARCHITECTURE.md"
    for other in imported(modules()[name]):
        if other.startswith("reference"):
            assert name.startswith("testing"), f"{name} imports the reference, which only tests and testing may"
            continue
        below = floor(other)
        assert below is not None
        assert below <= own, f"{name} (floor {own}) imports {other} (floor {below})"


@pytest.mark.parametrize("name", sorted(n for n in modules() if n.startswith(SCHEMES) and n not in SCHEMES))
def test_schemes_do_not_know_each_other(name: str) -> None:
    assert not {other for other in imported(modules()[name]) if other.startswith(SCHEMES)}


def test_the_reference_stands_beside_the_house() -> None:
    files = sorted((PACKAGE / "reference").glob("*.py"))
    assert files
    for path in files:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        roots = {alias.name.split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.Import) for alias in n.names}
        froms = {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module}
        assert roots | froms <= {"numpy", "math", "collections.abc", "typing"} | {f for f in froms if own(f)}


def own(module: str) -> bool:
    """Tell whether a module is part of the reference."""
    return module.startswith("whatwhere.reference.")


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_the_architecture_tells_of_every_file(path: Path) -> None:
    told = (PACKAGE.parents[1] / "ARCHITECTURE.md").read_text(encoding="utf-8")
    room = path.parent.name if path.name == "__init__.py" else path.name
    assert room in told, f"ARCHITECTURE.md does not mention {room}"


def definitions(tree: ast.Module | ast.ClassDef, prefix: str) -> Iterator[tuple[str, ast.AST]]:
    """Give the public functions, classes and methods, not what is defined inside functions."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            if any(isinstance(mark, ast.Name) and mark.id == "overload" for mark in node.decorator_list):
                continue  # the definition behind it speaks
            yield f"{prefix}.{node.name}", node
            if isinstance(node, ast.ClassDef):
                yield from definitions(node, f"{prefix}.{node.name}")


@pytest.mark.parametrize("name", sorted(modules()))
def test_public_definitions_say_what_they_are(name: str) -> None:
    tree = ast.parse(modules()[name].read_text(encoding="utf-8"))
    silent = [n for n, node in definitions(tree, name) if ast.get_docstring(node) is None]
    assert not silent
