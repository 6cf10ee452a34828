"""Made-up results folders: random numbers of a plausible shape, marked as such by their `command`."""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from whatwhere.comparison.model import build_wheres
from whatwhere.comparison.results import RunResult, summarize
from whatwhere.comparison.run import view_of
from whatwhere.comparison.settings import make_settings
from whatwhere.comparison.tasks import Expressions
from whatwhere.records import from_json, to_json, with_checksum
from whatwhere.where.catalogue import catalogue

SCHEMES = ("none", "sinusoidal", "learned", "rotary", "alibi")
SHIFTS = (0, 1, 2, 4, 8, 16, 32, 60)
TOKENS = ["PAD", "EOS", *"0123456789", "First", "Second", "Last", "Max", "Min", "(", ")", ","]
GROUPS = ["First", "Second", "Last", "Max", "Min"]
HOSTILE = "</title></style><script>alert(1)</script>\"'&<img src=x onerror=alert(1)>$\\frac{\u202egnp\ud800\x00"


def made_up_task(name: str) -> dict[str, Any]:
    if name == "expressions":
        lengths = [8, 12, 16, 24, 32]
        guesses = {"chance": 0.1, "always 9 or 0": 0.12, "order-free ceiling": 0.658}
        baselines = {guess: {str(n): value for n in [*range(1, 7), *lengths]} for guess, value in guesses.items()}
        return _task(
            name=name, unit="arguments", trained=list(range(1, 7)), lengths=lengths, groups=GROUPS, measure="accuracy",
            baselines=baselines, tokens=TOKENS,
        )  # fmt: skip
    if name == "recall":
        return _task(
            name=name, unit="pairs", trained=[4, 8], lengths=[8, 16, 32, 64], groups=[], measure="accuracy",
            baselines={"chance": {str(n): 1 / 26 for n in (8, 16, 32, 64)}}, tokens=[chr(97 + i) for i in range(26)],
        )  # fmt: skip
    symbols = [chr(i) if 32 < i < 127 else f"0x{i:02x}" for i in range(256)]
    blind = {
        "all bytes alike": dict.fromkeys(("64", "128", "256"), 5.545),
        "frequency of bytes": {"64": 1.6, "256": 1.6},
    }
    return _task(
        name=name, unit="bytes", trained=[64], lengths=[64, 128, 256], groups=["last quarter"], measure="nats per byte",
        baselines=blind, tokens=symbols,
    )  # fmt: skip


def _task(**task: Any) -> dict[str, Any]:
    trained = task["trained"]
    same = {"higher_is_better": task["measure"] == "accuracy", "tested_in_length": trained, "identity": ""}
    return task | same | {"shift_length": trained[len(trained) // 2]}


def made_up_folder(folder: Path, task: str = "expressions", schemes: tuple[str, ...] = SCHEMES, seeds: int = 3) -> Path:
    """Make a valid results folder from random but plausible numbers. Nothing was trained."""
    (folder / "models").mkdir(parents=True, exist_ok=True)
    described = made_up_task(task)
    runs = [_run(folder, described, scheme, seed) for scheme in schemes for seed in range(seeds)]
    data = {
        "format": "whatwhere-results",
        "version": 4,
        "created": "2026-01-02T03:04:05Z",
        "seconds": 106.4,
        "versions": {"whatwhere": "0.1.0", "torch": "2.13.0", "python": "3.11.9", "numpy": "2.4.6"},
        "machine": {"processor": "made-up processor", "cores": 2, "system": "Linux"},
        "command": f"whatwhere compare --task {task} (made up: no run behind these numbers)",
        "seeds": list(range(seeds)),
        "device": "cpu",
        "threads_per_run": 1,
        "settings": to_json(make_settings(task, described["lengths"], steps=800, batch=64), None),
        "task": described,
        "runs": runs,
        "summary": _summaries(runs),
        "schemes": {scheme: _scheme(scheme) for scheme in schemes},
    }
    (folder / "results.json").write_text(json.dumps(with_checksum(data)), encoding="utf-8")
    return folder


def _run(folder: Path, task: dict[str, Any], scheme: str, seed: int) -> dict[str, Any]:
    draw = np.random.default_rng([seed, *scheme.encode("utf-8", "replace")])
    file = f"models/{re.sub(r'[^A-Za-z0-9_.-]', '_', scheme)[:60]}-{seed}.safetensors"
    words, dim = len(task["tokens"]), 64
    start = draw.normal(0, 0.15, (words, dim))
    change = draw.normal(0, 0.05, (words, dim))
    if task["name"] == "expressions":  # a number line, and Max against Min
        change[2:12] += np.linspace(-1, 1, 10)[:, None] * draw.normal(0, 0.1, dim)
        change[15], change[16] = (side := draw.normal(0, 0.1, dim)), -side
    tables = {
        "input.tokens.weight@0": start,
        "input.tokens.weight@20": start + 0.5 * change,
        "input.tokens.weight": start + change,
    }
    save_file({name: values.astype(np.float32) for name, values in tables.items()}, folder / file)
    trained = max(task["trained"])
    hold = float(draw.uniform(0.1, 0.9))
    scores: dict[str, Any] = {}
    for length in sorted({*task["trained"], *task["lengths"]}):
        row = scheme == "learned" and length > trained
        reach = math.log2(max(length / trained, 1)) * hold * 0.3
        values = [max(0.05, 1 - reach * float(draw.uniform(0.6, 1.4))) for _ in range(1 + len(task["groups"]))]
        values = values if task["higher_is_better"] else [2.4 - v for v in values]
        named = zip(["all", *task["groups"]], values, strict=True)
        scores[str(length)] = {name: None if row else value for name, value in named}
    fixed = scheme not in {"sinusoidal", "learned"}
    shift = {
        str(s): {
            "score": 0.99 if fixed or s == 0 else 0.6 / math.sqrt(s),
            "largest_logit_change": 0.0
            if s == 0 or scheme == "none"
            else float(draw.uniform(0.5, 1)) * (1e-5 if fixed else 20),
        }
        for s in SHIFTS
    }
    if scheme == "learned":
        shift |= {str(s): {"score": None, "largest_logit_change": None} for s in SHIFTS if s > 0}
    return {
        "scheme": scheme,
        "seed": seed,
        "parameters": {"total": 104_320, "tokens": 1280, "positions": 896 if scheme == "learned" else 0},
        "steps": 800,
        "seconds": 20.1,
        "seconds_per_step": 0.0125 + 0.001 * seed,
        "losses": [[0, 2.3], [800, 0.01]],
        "scores": scores,
        "in_length": scores[str(trained)]["all"],
        "shift": shift,
        "token_table": _snapshots(draw) if task["name"] == "expressions" else [],
        "trace": "",
        "file": file,
    }


def _snapshots(draw: np.random.Generator) -> list[dict[str, Any]]:
    snapshots = []
    for percent, std in ((0, 0.15), (20, 0.17), (100, 0.19)):
        numbers = {"mean": float(draw.normal(0, 0.002)), "std": std, "min": -3.5 * std, "max": 3.4 * std}
        cosine = {
            "max_min": -0.003 * percent,
            "first_last": -0.002 * percent,
            "within_digits": -0.01,
            "within_operators": -0.05,
            "within_syntax": 0.003 * percent,
        }
        later = percent > 0
        snapshots.append({
            "percent": percent, "table": numbers, "with_positions": {**numbers, "std": std + 0.6}, "cosines": cosine,
            "change_cosines": {name: 2 * value for name, value in cosine.items()} if later else None,
            "number_line": float(draw.uniform(0.8, 0.97)) if later else None,
        })  # fmt: skip
    return snapshots


def _summaries(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    read = [from_json(RunResult, run, "made up") for run in json.loads(json.dumps(runs))]
    schemes = dict.fromkeys(run.scheme for run in read)
    return {name: to_json(summarize([run for run in read if run.scheme == name]), None) for name in schemes}


@cache
def _scheme(scheme: str) -> Any:
    if scheme not in catalogue:
        return {"doors": [], "fingerprint": None, "by_distance": None}
    (where,) = build_wheres(scheme, 64, 4, 14, 1)
    return to_json(view_of(where, Expressions(), make_settings("expressions", [8, 32])), None)


def change(folder: Path, how: Callable[[dict[str, Any]], Any]) -> Path:
    """Change the results.json of a folder."""
    path = folder / "results.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    how(data)
    path.write_text(json.dumps(with_checksum(data)), encoding="utf-8")
    return folder


def hostile_folder(folder: Path) -> Path:
    """Make a folder whose every name, word and label is an attack."""

    def poison(data: dict[str, Any]) -> None:
        task, groups = data["task"], data["task"]["groups"]
        task["groups"] = [*groups[:-1], HOSTILE]
        task["tokens"][17] = task["unit"] = task["measure"] = task["name"] = HOSTILE
        task["baselines"][HOSTILE] = task["baselines"].pop("chance")
        for part in [*data["runs"], *data["summary"].values()]:
            for scores in part["scores"].values():
                scores[HOSTILE] = scores.pop(groups[-1])
        fingerprint = {"label": HOSTILE, "values": [[1.0, -1.0]]}
        curves = {"label": HOSTILE, "distances": [0, 1], "curves": {HOSTILE: [1.0, 0.5], HOSTILE * 2: [0.5, 0.1]}}
        data["schemes"][HOSTILE] = {"doors": [HOSTILE], "fingerprint": fingerprint, "by_distance": curves}
        data["machine"]["processor"] = data["created"] = data["command"] = HOSTILE
        data["versions"]["torch"] = HOSTILE

    return change(made_up_folder(folder, schemes=("none", HOSTILE, "learned"), seeds=1), poison)


def set_scores(folder: Path, length: int | None, scores: Mapping[str, Sequence[float | None]]) -> Path:
    """Set the scores of schemes at a length, or in length, by seed."""

    def apply(data: dict[str, Any]) -> None:
        for run in data["runs"]:
            value = scores[run["scheme"]][run["seed"]]
            if length is None:
                run["in_length"] = value
            else:
                run["scores"][str(length)]["all"] = value
        data["summary"] = _summaries(data["runs"])

    return change(folder, apply)


def scored_folder(folder: Path, length: int | None, scores: Mapping[str, Sequence[float | None]]) -> Path:
    """Make a results folder of schemes with these scores by seed, at a length or in length."""
    seeds = len(next(iter(scores.values())))
    return set_scores(made_up_folder(folder, schemes=tuple(scores), seeds=seeds), length, scores)
