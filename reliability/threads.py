"""Four threads at once: every scheme, example of a docstring, optimizer of rows and test gives what it gives alone."""

import contextlib
import doctest
import importlib
import io
import pkgutil
import random
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import TypeVar
from unittest import mock

import torch
from safetensors.torch import load_file
from torch import Tensor

import whatwhere as ww
from reliability.findings import Trial
from whatwhere.comparison.model import Transformer, build_wheres
from whatwhere.comparison.read import OwnScores
from whatwhere.comparison.settings import make_settings
from whatwhere.comparison.statistics import paired_differences
from whatwhere.comparison.train import one_thread
from whatwhere.what.file_table import FileRowAdamW, FileTokenEmbedding

Result = TypeVar("Result")
THREADS = 4
VOCAB, DIM, HEADS, STEPS = 32, 16, 2, 40
LENGTHS = (5, 9, 16, 24)
SETTINGS = make_settings("expressions", (8,), dim=DIM, heads=HEADS, feedforward=DIM, layers=2)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
GLOBAL = ("manual_seed", "init_process_group", "warnings.", "chdir", "environ", "set_num_threads", "set_default")
"""What an example changes for the whole process: its result depends on what other threads do meanwhile."""
DOCSTRINGS = 60
"""As many for each round: the tests run some of them, a campaign all."""
APART = ("whatwhere.kernels.cuda", "whatwhere.kernels._native", "whatwhere.__main__")
"""Modules that import Triton, which not every machine can have; compiled functions; a command."""


def run(times: int) -> tuple[Trial, ...]:
    """Use everything from four threads at once, so many times.

    Args:
        times: rounds of each trial.
    """
    with one_thread():
        tables = (_tables("RowAdamW", _trained, times), _tables("FileRowAdamW", _trained_in_a_file, times))
        return (_schemes(times), _examples(times), *tables, _differences(times))


def _schemes(times: int) -> Trial:
    """Run one model of each scheme in all threads, with new caches in each round; compare with a copy, bit by bit."""
    failures, used = list[str](), 0
    for name in ww.catalogue:
        generator = torch.Generator().manual_seed(0)
        wheres = build_wheres(name, DIM, HEADS, max(LENGTHS), SETTINGS.layers)
        model = Transformer(VOCAB, wheres, SETTINGS, generator)
        texts = [torch.randint(VOCAB, (2, tokens), generator=generator) for tokens in LENGTHS]
        wanted = [_outputs(deepcopy(model), text) for text in texts]
        for _ in range(times):
            shared = deepcopy(model)
            found = _at_once([partial(_outputs, shared, text) for text in texts])
            used += THREADS
            failures += [f"{name}: {_of(each, one)}" for each, one in zip(found, wanted, strict=True) if _of(each, one)]
    seen = (
        f"{len(ww.catalogue)} schemes, one model each: {used:,} passes with gradients, bit for bit those of one thread"
    )
    return Trial(f"one model of each scheme in {THREADS} threads", used, len(failures), seen, tuple(failures[:3]))


def _outputs(model: Transformer, text: Tensor) -> dict[str, Tensor]:
    """Return logits, and the gradient of each parameter that they depend on."""
    logits = model(text)
    parameters = dict(model.named_parameters())
    gradients = torch.autograd.grad(logits.square().mean(), list(parameters.values()), allow_unused=True)
    named = zip(parameters, gradients, strict=True)
    return {"logits": logits.detach()} | {name: each for name, each in named if each is not None}


def _examples(times: int) -> Trial:
    """Run the examples of all docstrings in all threads, each in an order of its own, and then each in all at once."""
    tests = [test for test in _docstrings() if test.examples]
    apart = [test for test in tests if any(word in each.source for each in test.examples for word in GLOBAL)]
    chosen = [test for test in tests if test not in apart]
    chosen = random.Random(0).sample(chosen, min(len(chosen), DOCSTRINGS * times))
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder),
        mock.patch.object(tempfile, "tempdir", folder),
        contextlib.redirect_stdout(_Streams()),
    ):
        failures = [f"alone: {message}" for test in chosen if (message := _fails(test))]
        for n in range(times):
            orders = [random.Random(f"{n} {thread}").sample(chosen, len(chosen)) for thread in range(THREADS)]
            failures += [
                each for found in _at_once([partial(_all_failures, order) for order in orders]) for each in found
            ]
            failures += [each for test in chosen for each in _at_once([partial(_fails, test)] * THREADS) if each]
    used = 2 * times * THREADS * len(chosen)
    seen = (
        f"{len(chosen):,} docstrings with {sum(len(test.examples) for test in chosen):,} examples; "
        f"{len(apart)} others set the seed, process group or settings of the process, and ran in no thread"
    )
    return Trial(f"examples of all docstrings in {THREADS} threads", used, len(failures), seen, tuple(failures[:3]))


def _all_failures(tests: list[doctest.DocTest]) -> list[str]:
    return [message for test in tests if (message := _fails(test))]


def _docstrings() -> Iterator[doctest.DocTest]:
    finder = doctest.DocTestFinder()
    for module in pkgutil.walk_packages(ww.__path__, "whatwhere."):
        if not module.name.startswith(APART):
            yield from finder.find(importlib.import_module(module.name))


def _fails(test: doctest.DocTest) -> str:
    """Run the examples of a docstring; return what the first wrong one printed, or nothing."""
    names, checker = dict(test.globs), doctest.OutputChecker()
    for example in test.examples:
        printed, raised = io.StringIO(), None
        with _Streams.into(printed):
            try:
                exec(compile(example.source, f"<{test.name}>", "single"), names)
            except Exception as problem:
                raised = traceback.format_exception_only(problem)[-1]
        flags = FLAGS | sum(flag for flag, on in example.options.items() if on)
        if flags & doctest.SKIP:
            continue
        if (raised is None) != (example.exc_msg is None):
            return f"{test.name}: {example.source.strip()}: {raised or 'nothing raised'}"
        if raised is None and not checker.check_output(example.want, printed.getvalue(), flags):
            return f"{test.name}: {example.source.strip()}: printed {printed.getvalue()!r}"
    return ""


class _Streams(io.TextIOBase):
    """A standard output of which each thread has its own."""

    own = threading.local()

    @classmethod
    @contextlib.contextmanager
    def into(cls, stream: io.StringIO) -> Iterator[None]:
        """Give what this thread prints to a stream."""
        cls.own.stream = stream
        try:
            yield
        finally:
            del cls.own.stream

    def write(self, text: str) -> int:
        """Write to the stream of this thread."""
        stream = getattr(self.own, "stream", None)
        return len(text) if stream is None else stream.write(text)


def _tables(optimizer: str, train: Callable[[int], Tensor], times: int) -> Trial:
    """Train a table in each thread; compare with the same table trained alone, bit by bit."""
    failures = []
    wanted = [train(seed) for seed in range(THREADS)]
    for _ in range(times):
        found = _at_once([partial(train, seed) for seed in range(THREADS)])
        failures += [f"seed {n}: other rows" for n in range(THREADS) if not torch.equal(found[n], wanted[n])]
    seen = f"{STEPS} steps each: the rows are bit for bit those of one thread"
    return Trial(f"{optimizer} in {THREADS} threads", times * THREADS, len(failures), seen, tuple(failures[:3]))


def _trained(seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    table = ww.TokenEmbedding(512, DIM)
    table.reset_parameters(generator)
    _steps(table, ww.RowAdamW(table, lr=0.01), generator)
    return table.weight.detach().clone()


def _trained_in_a_file(seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    with tempfile.TemporaryDirectory() as folder:
        FileTokenEmbedding.create(path := Path(folder) / "tokens.safetensors", 512, DIM, generator=generator)
        table = FileTokenEmbedding(path)
        _steps(table, FileRowAdamW(table, lr=0.01), generator)
        return load_file(path)["weight"]


def _steps(
    table: ww.TokenEmbedding | FileTokenEmbedding, optimizer: ww.RowAdamW | FileRowAdamW, generator: torch.Generator
) -> None:
    for _ in range(STEPS):
        ids = torch.randint(512, (64,), generator=generator)
        table(ids).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    optimizer.flush()


def _differences(times: int) -> Trial:
    """Test differences of random scores in all threads; compare with those found alone."""
    draws, failures = random.Random(0), []
    for number in range(times):
        names = ("rotary", "alibi", "none")
        scores = {name: {seed: {8: draws.gauss(0.8, 0.1)} for seed in range(8)} for name in names}
        call = partial(paired_differences, OwnScores(scores, "random", 8, "a score", higher_is_better=True), None)
        wanted = call()
        failures += [f"draw {number}: other numbers" for found in _at_once([call] * THREADS) if found != wanted]
    seen = "p-values and intervals of three schemes and eight seeds are those of one thread"
    return Trial(f"paired differences in {THREADS} threads", times * THREADS, len(failures), seen, tuple(failures[:3]))


def _at_once(calls: list[Callable[[], Result]]) -> list[Result]:
    """Return the results of calls that begin together, each in a thread of its own."""
    together = threading.Barrier(len(calls))

    def begun(call: Callable[[], Result]) -> Result:
        with one_thread():
            together.wait()
            return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(begun, calls))


def _of(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> str:
    """Return the name of the first tensor that differs, or nothing."""
    if found.keys() != wanted.keys():
        return "other gradients"
    return next((name for name, value in found.items() if not torch.equal(value, wanted[name])), "")
