"""Plans of every model type: they name schemes of the catalogue, and nothing imports PyTorch before it builds."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import whatwhere as ww
from whatwhere import temperature
from whatwhere.models.configuration.description import CLASSES, Description, Plan, class_of
from whatwhere.models.configuration.model_types import MODEL_TYPES
from whatwhere.models.configuration.scores import alibi_slopes, falcon_slopes
from whatwhere.where.scaling import Scaling
from whatwhere.where.score.alibi import slopes

from ...running import fitting
from ..tiny import config_of

BLOCKED = 'import sys\nsys.modules["torch"] = None\n'
"""The beginning of a program in which an import of PyTorch fails."""


def run(program: str, *args: str | Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, args)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def plans_of(description: Description) -> list[Plan]:
    plans = (description.input, *description.query_key, *description.score)
    return [plan for plan in plans if plan is not None]


# PyTorch


def test_files_are_read_without_torch(minilm: Path, tmp_path: Path) -> None:
    """Configurations of many types, a whole model, and numbers of parameters; a plan can be shown, but not be built."""
    configs = [
        json.loads(config_of(model_type).to_json_string(use_diff=False)) for model_type in sorted(MODEL_TYPES)[::5]
    ]
    (tmp_path / "configs.json").write_text(json.dumps(configs))
    (tmp_path / "config.json").write_text(json.dumps(configs[0]))
    program = f"""{BLOCKED}
import json
import whatwhere as ww
configs = json.load(open(sys.argv[1] + "/configs.json"))
for config in configs:
    description = ww.read(config)
    rows = config["vocab_size"] + description.extra_rows
    assert ww.parameters(config).tokens == rows * description.token_dim
    repr(description)
assert ww.read(sys.argv[1] + "/config.json") == ww.read(configs[0])
plan = next(plan for config in configs for plan in ww.read(config).query_key if plan is not None)
try:
    plan.build()
except ModuleNotFoundError:
    from whatwhere.cli import main
    sys.argv[1:] = ["inspect", sys.argv[2], "--json"]
    main()
"""
    printed = run(program, tmp_path, minilm)
    assert fitting("inspect", printed)
    assert "position_embeddings" in printed


# Plans and the catalogue


def test_plans_name_schemes_of_the_catalogue() -> None:
    doors = {ww.InputEncoding: "input", ww.QueryKeyMap: "query_key", ww.ScoreBias: "score"}
    for name in CLASSES:
        built = ww.scheme(name, dim=32, num_heads=1, max_length=64)
        door = ww.catalogue[name].door
        assert {doors[base] for base in doors if isinstance(getattr(built, door), base)} == {door}
        if issubclass(class_of(name), Scaling):
            assert isinstance(built.query_key, ww.Rotary)
            assert type(built.query_key.scaling) is class_of(name)
        else:
            assert type(getattr(built, door)) is class_of(name)


@pytest.mark.every_nth(7)
@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_every_plan_builds_what_it_names(model_type: str) -> None:
    for plan in plans_of(ww.from_huggingface(config_of(model_type))):
        built: Any = plan.build(device="meta" if plan.scheme in ("learned", "t5", "deberta") else None)
        assert type(built) is class_of(plan.scheme)
        assert plan.name in ww.catalogue
        names: dict[str, Any] = {kind.__name__: kind for kind in map(class_of, CLASSES)} | vars(temperature)
        assert repr(eval(repr(plan), names)) == repr(plan.build())


def test_a_plan_shows_the_call_that_builds_it() -> None:
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
    plan = ww.from_huggingface(config_of("llama", rope_parameters={"rope_theta": 1e4, **yarn})).query_key[0]
    assert plan is not None
    assert repr(plan).startswith("Rotary(head_dim=16, theta=10000.0, interleaved=False, rotary_dim=None, scaling=YaRN(")
    assert (plan.scheme, plan.name) == ("rotary", "rotary-yarn")


def test_slopes_without_torch_are_those_of_alibi() -> None:
    for num_heads in range(1, 131):
        assert alibi_slopes(num_heads) == tuple(slopes(num_heads))
        rounded = torch.tensor(slopes(num_heads)).bfloat16().double() * 80**-0.5
        assert falcon_slopes(num_heads, 80) == tuple(rounded.tolist())
