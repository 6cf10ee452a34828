"""Run another project's tests with parts of ours in place, and list what fails with them alone.

    python -m reliability.other_tests CHECKOUT PART [PART ...] -- [PYTEST ARGUMENTS, such as tests/models/bart]

    attention    models of transformers have attn_implementation="whatwhere" by default and where a test names "sdpa"
    patch        models of transformers are patched when they are first called
    embedding    torch.nn.Embedding is TokenEmbedding

CHECKOUT is a folder with the project's tests, of the version that is installed. They run twice, without the parts and
with them; the status is 1 if a test, or more of its subtests, fails with them alone. What a test asserts of the names
of things, such as of the attention that is chosen by default, fails for that reason. Nothing is written into the
checkout.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree

import torch

import whatwhere as ww

_PARTS = "WHATWHERE_PARTS"
_SHOWN = 110
Results = Mapping[str, tuple[str, list[str]]]
"""Name of a test -> what became of it, and the first line of each failure."""


def use_attention() -> None:
    """Make models use our attention where they would choose by themselves, or by the name of PyTorch's."""
    import transformers

    name, kind = ww.register_attention(), cast("Any", transformers.PreTrainedModel)
    chosen = kind.get_correct_attn_implementation

    @wraps(chosen)
    def ours(model: Any, requested: str | None, *args: Any, **others: Any) -> Any:
        return chosen(model, name if requested in (None, "sdpa") else requested, *args, **others)

    kind.get_correct_attn_implementation = ours


def use_patch() -> None:
    """Patch each model when it is first called, if its type can be."""
    import transformers

    kind = cast("Any", transformers.PreTrainedModel)
    called = kind.__call__

    def patched(model: Any, *args: Any, **others: Any) -> Any:
        if not vars(model).get("_asked_whatwhere"):
            for each in model.modules():  # the parts of a model are not patched by themselves
                vars(each)["_asked_whatwhere"] = True
            with suppress(ww.WhatWhereError):
                ww.patch(model)
        return called(model, *args, **others)

    kind.__call__ = patched


def use_embedding() -> None:
    """Make TokenEmbedding the class of every table of tokens."""
    torch.nn.Embedding = torch.nn.modules.sparse.Embedding = ww.TokenEmbedding  # type: ignore[misc]


PARTS: Mapping[str, Callable[[], None]] = {
    "attention": use_attention,
    "embedding": use_embedding,
    "patch": use_patch,
}


def pytest_configure(config: object) -> None:
    """Put the parts in place before tests are collected: this module is a plugin of pytest in the runs with them."""
    for part in os.environ.get(_PARTS, "").split():
        PARTS[part]()


def results(checkout: Path, parts: list[str], arguments: list[str]) -> Results:
    """Run the tests, and return for each one what became of it and the first line of each thing that it said.

    Args:
        checkout: with the tests.
        parts: of ours that are in place.
        arguments: of pytest.

    Raises:
        SystemExit: If pytest ran no test.
    """
    root = Path(__file__).resolve().parents[1]
    paths = (str(root / "src"), str(root), os.environ.get("PYTHONPATH", ""))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), _PARTS: " ".join(parts)}
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        plugins = ("-p", "no:cacheprovider", "-p", "reliability.other_tests")
        command = (sys.executable, "-m", "pytest", "-q", *plugins, f"--junitxml={report}", *arguments)
        done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
        cases = list(ElementTree.parse(report).iter("testcase")) if report.is_file() else []
    if not cases:
        raise SystemExit(f"pytest ran no test in {checkout}:\n{(done.stdout + done.stderr)[-2000:]}")
    return {f"{case.get('classname')}::{case.get('name')}": _outcome(case) for case in cases}


def _outcome(case: ElementTree.Element) -> tuple[str, list[str]]:
    for word, kinds in (("failed", ("error", "failure")), ("skipped", ("skipped",))):
        if found := [one.get("message") or "" for kind in kinds for one in case.findall(kind)]:
            return word, [said.split("\n")[0][:_SHOWN] for said in found]
    return "passed", []


def _failing(now: Results, then: Results) -> dict[str, str]:
    """Return the tests of which more fails now than then, with a message that is new if there is one."""
    failed = {name: said for name, (word, said) in then.items() if word == "failed"}
    return {
        name: next((one for one in said if one not in failed.get(name, [])), said[0])
        for name, (word, said) in now.items()
        if word == "failed" and len(said) > len(failed.get(name, []))
    }


def main() -> int:
    """Run the tests without and with the parts, and print what differs."""
    parser = argparse.ArgumentParser(
        prog="python -m reliability.other_tests", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("checkout", type=Path)
    parser.add_argument("parts", nargs="+", choices=PARTS, metavar="PART")
    given = sys.argv[1:]
    end = given.index("--") if "--" in given else len(given)
    options, arguments = parser.parse_args(given[:end]), given[end + 1 :]
    before = results(options.checkout, [], arguments)
    after = results(options.checkout, options.parts, arguments)
    print(f"without: {dict(Counter(word for word, _ in before.values()))}")
    print(f"with {', '.join(options.parts)}: {dict(Counter(word for word, _ in after.values()))}")
    broken = _failing(after, before)
    for title, found in (("with", broken), ("without", _failing(before, after))):
        print(f"fails {title} them alone: {len(found)}", *(f"  {name}: {why}" for name, why in found.items()), sep="\n")
    return int(bool(broken))


if __name__ == "__main__":
    raise SystemExit(main())
