"""The runs of a comparison, planned: each scheme with its settings and task, checked before any training."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from whatwhere.comparison.byte_text import ByteText, in_memory, open_files
from whatwhere.comparison.model import (
    SchemeLike,
    evaluation_generator,
    evaluation_positions,
    name_of,
    with_max_length,
)
from whatwhere.comparison.own_model import BuildModel, check_model, check_scheme, explained
from whatwhere.comparison.results import ModelRecord
from whatwhere.comparison.run import Job
from whatwhere.comparison.runner import bytes_read
from whatwhere.comparison.saved_model import find_start, load_start, open_start, require_same_tokens
from whatwhere.comparison.settings import Settings, with_settings
from whatwhere.comparison.tasks import Expressions, Recall, Task, Text, python_documentation
from whatwhere.comparison.token_text import TokenText, tokenized
from whatwhere.comparison.train import build as build_model
from whatwhere.comparison.variants import make_variants
from whatwhere.errors import SettingError
from whatwhere.what.text import read_bytes, require_text

_SLOW_FROM = 1 << 23  # bytes of a text that take seconds to tokenize


def make_task(
    name: str,
    direction: str,
    trained: Sequence[int] | None,
    files: Sequence[Path],
    tokenizer: Path | None = None,
    show: bool = False,
) -> Task:
    """Return the task of a name."""
    if name != "text" and (files or tokenizer is not None):
        raise SettingError(f"files and a tokenizer are read by task='text' only, but task={name!r}.")
    options: dict[str, Any] = {} if trained is None else {"trained": trained}
    if name == "expressions":
        return Expressions(direction=direction, **options)
    if name == "recall":
        return Recall(**options)
    if name == "text":
        _require_decoder(direction)
        return Text(_text(files, tokenizer, show), **options)
    raise SettingError(f"a run got task={name!r}, but the tasks are: expressions, recall, text.")


def _text(files: Sequence[Path], tokenizer: Path | None, show: bool) -> bytes | ByteText | TokenText | None:
    """Return the text of files, or of the Python documentation, as ids where there is a tokenizer."""
    text = _read(files, show) if files else None
    if tokenizer is None:
        return text
    content = python_documentation() if text is None else text
    read = in_memory(content) if isinstance(content, bytes) else content
    with bytes_read("tokenizing the text", len(read), show, _SLOW_FROM) as on_read:
        return tokenized(read, tokenizer, on_read=on_read)


def _read(files: Sequence[Path], show: bool) -> ByteText | bytes:
    """Return the text of files; what a pipe brings is kept in memory."""
    if not all(file.is_file() for file in files):
        return b"\n".join(map(read_bytes, files))
    for file in files:
        require_text(file)
    with bytes_read("reading the text", sum(file.stat().st_size for file in files), show) as on_read:
        return open_files(files, on_read)


def make_plans(
    schemes: Sequence[SchemeLike],
    vary: Mapping[str, Sequence[Any]] | None,
    task: Task,
    settings: Settings,
    model: BuildModel | None = None,
) -> list[Job]:
    """Return a run of each variant, of seed 0."""
    if not schemes:
        raise SettingError('compare got no scheme; pass some, as in compare(["none", "rotary", "alibi"]).')
    plans = []
    for scheme in schemes:
        read = isinstance(scheme, str) or isinstance(scheme[1], Mapping)
        for name, base, varied in make_variants(name_of(scheme), vary, settings, own=not read):
            chosen = with_settings(settings, varied)
            subject = _in_direction(task, chosen.direction)
            built = base if isinstance(scheme, str) else (base if read else scheme[0], scheme[1])
            plans.append(Job(built, 0, subject, with_max_length(chosen, subject), name, varied, model=model))
    names = [plan.name for plan in plans]
    double = next((name for name in names if names.count(name) > 1), None)
    if double is not None:
        raise SettingError(f"compare got two schemes with the name {double!r}; results are kept by name.")
    return plans


def _in_direction(task: Task, direction: str) -> Task:
    """Return the task for a direction: the same sequences, answered at another token."""
    if isinstance(task, Expressions) and task.direction != direction:
        return Expressions(task.trained, direction)
    if isinstance(task, Text):
        _require_decoder(direction)
    own = getattr(task, "direction", direction)
    if own != direction:
        raise SettingError(
            f"the task was made for direction={own!r}, so direction={direction!r} cannot be compared: pass "
            f"direction={own!r}."
        )
    return task


def _require_decoder(direction: str) -> None:
    if direction == "encoder":
        raise SettingError("an encoder attends to the next byte, which task='text' predicts: pass direction='decoder'.")


def with_seeds(plans: Sequence[Job], seeds: Sequence[int], start: str | Path | None) -> list[Job]:
    """Return all runs: each plan with each seed, and with the kept model that it starts from."""
    if start is None:
        if any(plan.settings.steps == 0 for plan in plans):
            raise SettingError(
                "steps=0 trains nothing: pass start=RESULTS (--start), whose models are measured, or more steps."
            )
        return [replace(plan, seed=seed) for seed in seeds for plan in plans]
    results, scheme = open_start(start)
    require_same_tokens(results, tuple(plans[0].task.tokens))
    jobs = []
    for seed in seeds:
        for plan in plans:
            found = find_start(results, scheme, (plan.name, name_of(plan.scheme)), seed)
            jobs.append(replace(plan, seed=seed, start=found))
    for job in jobs[: len(plans)]:
        assert job.start is not None
        load_start(build_model(job.scheme, job.seed, job.task, job.settings, job.model), job.start, job.settings)
    return jobs


def module_option(built: object, name: str | None = None) -> str | None:
    """Return how the command line names an own object: "mine.py:build", "my.own:build"; None where it cannot."""
    module = sys.modules.get(getattr(built, "__module__", type(built).__module__))
    file = getattr(module, "__file__", None)
    if module is None or file is None or not Path(file).stem.isidentifier():
        return None
    found = next((key for key, value in vars(module).items() if value is built and name in (None, key)), None)
    return None if found is None else f"{module.__name__ if '.' in module.__name__ else file}:{found}"


def seed_numbers(seeds: int | Sequence[int]) -> list[int]:
    """Return the seeds of a comparison: all different and not too large, at least one."""
    numbers = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    outside = any(isinstance(seed, bool) or not 0 <= seed < 2**32 for seed in numbers)
    if not numbers or outside or len(set(numbers)) < len(numbers):
        given = seeds if isinstance(seeds, int) else numbers
        raise SettingError(f"compare got seeds={given}, but needs at least one, each 0..2**32-1 and given once.")
    return numbers


def rehearse(plan: Job) -> ModelRecord | None:
    """Raise before any training what would be raised after it; return what is known of a model of the caller's own."""
    task, settings = plan.task, plan.settings
    test_set = task.test_set(max(task.trained), 1)
    own = None if plan.model is None else check_model(plan.model, plan.scheme, task, settings)
    name, ids = name_of(plan.scheme), test_set.ids.to(settings.resolved_device)
    is_own = not isinstance(plan.scheme, str)
    with torch.no_grad(), explained(f"the scheme {name!r}", "was tried") if is_own else nullcontext():
        model = build_model(plan.scheme, 0, task, settings, plan.model)
        parts = [part for where in model.layer_wheres for part in (where.query_key, where.score)]
        if settings.direction == "encoder" and any(part is not None and part.causal_only for part in parts):
            raise SettingError(
                f"the scheme {name!r} supports causal attention only, but an encoder attends to later keys."
                "\nLeave it out, or compare decoders: direction='decoder'."
            )
        p = evaluation_positions(settings, ids, evaluation_generator(ids.shape[1]))
        model.require_defined(p)
        model(ids, test_set.at, p)
    if is_own:
        check_scheme(model, build_model(plan.scheme, 0, task, settings, plan.model), ids, settings, name)
    for length in {*task.tested_in_length, *settings.lengths, task.shift_length}:
        task.test_set(length, 1)
    return own
