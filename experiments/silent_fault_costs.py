"""E13: what silent faults about positions cost trained models, and which law of `whatwhere.testing` detects each."""

from collections.abc import Mapping

from experiments import silent_faults as faults
from experiments.bench import Bench, by_run
from experiments.expressions import TWICE
from experiments.faulty_schemes import Bfloat16Rotary, divided_alibi, misprinted_sinusoid, other_theta
from experiments.record import FaultRow, Result, Statement, learning
from whatwhere.comparison.model import Build, SchemeLike
from whatwhere.comparison.plan import make_task
from whatwhere.comparison.read import Comparison
from whatwhere.comparison.results import ALL, Spread
from whatwhere.comparison.saved_model import load_model
from whatwhere.where.query_key.rotary import Rotary
from whatwhere.where.scaling import YaRN

TRAINED = ("sinusoidal", "rotary", "alibi")
MISPRINTED = "misprinted sinusoid"
TRAINED_WITH: Mapping[str, tuple[str, Build]] = {
    "sinusoidal": (MISPRINTED, misprinted_sinusoid),
    "alibi": (faults.DIVIDED, divided_alibi),
}
"""Schemes with a fault that models are trained with too: by the right scheme, the fault and what builds it."""
HEAD_DIM = 16


def silent_fault_costs(bench: Bench) -> list[Result]:
    """Check faulty schemes by the laws; in the full scope also train, and measure what each fault costs."""
    laws = scheme_laws()
    detected = Statement(
        "E13.1",
        "The laws detect every faulty scheme",
        "this project",
        "laws that fail, for each of the faulty schemes",
        "at least 1",
        lambda count: count >= 1,
        "count",
    )
    decoding = Statement(
        "E13.2",
        "A test of cached decoding against the full pass finds none of the faulty schemes",
        "this project",
        "whether the law of decoding passes, for each of the faulty schemes",
        "1",
        lambda passes: passes == 1,
        "count",
    )
    results = [
        bench.judge(detected, [float(len(checked.failed)) for checked in laws.values()]),
        bench.judge(decoding, [float(checked.decoding) for checked in laws.values()]),
    ]
    costs = [] if bench.quick else _costs(bench, laws)
    bench.faults.extend(
        FaultRow(fault, scheme, "scheme", {}, {}, None, checked.failed, checked.decoding)
        for (fault, scheme), checked in laws.items()
        if not any(row.fault.startswith(fault) for row in bench.faults)
    )
    return [*results, *costs]


def scheme_laws() -> dict[tuple[str, str], faults.Laws]:
    """Check each faulty scheme.

    Returns:
        What the checks find, by fault and scheme.
    """
    rotary = Rotary(HEAD_DIM)
    yarn = YaRN(4.0, original_length=64)
    unmagnified = Rotary(HEAD_DIM, scaling=YaRN(4.0, original_length=64, attention_factor=1.0))
    return {
        (MISPRINTED, "sinusoidal"): faults.misprinted_sinusoid_laws(),
        (faults.OTHER_LAYOUT, "rotary"): faults.rotary_laws(Rotary(HEAD_DIM, interleaved=True), rotary),
        (faults.OTHER_THETA, "rotary"): faults.rotary_laws(other_theta(HEAD_DIM), rotary),
        (faults.BFLOAT16, "rotary"): faults.rotary_laws(Bfloat16Rotary(HEAD_DIM), rotary),
        ("YaRN without its magnitude", "rotary-yarn"): faults.rotary_laws(unmagnified, Rotary(HEAD_DIM, scaling=yarn)),
        (faults.DIVIDED, "alibi"): faults.divided_alibi_laws(),
    }


def _costs(bench: Bench, laws: Mapping[tuple[str, str], faults.Laws]) -> list[Result]:
    schemes: list[SchemeLike] = [*TRAINED, *TRAINED_WITH.values()]
    results = bench.compare("expressions", schemes, 3, task="expressions", lengths=(TWICE,))
    settings = results.record.settings
    task = make_task("expressions", settings.direction, settings.trained, [])
    models = {scheme: [load_model(results, run) for run in results.runs if run.scheme == scheme] for scheme in TRAINED}
    trained = (task, settings, TWICE)
    for scheme, (name, _) in TRAINED_WITH.items():
        accuracy, known = (_accuracy(results, scheme), _accuracy(results, name), None), laws[name, scheme]
        text = f"{name}, in training too"
        bench.faults.append(FaultRow(text, scheme, "scheme", *accuracy, known.failed, known.decoding))
    for fault in faults.scheme_faults():
        cost, known = faults.cost_of_scheme(fault, models[fault.scheme], *trained), laws[fault.fault, fault.scheme]
        change = (cost.right, cost.faulty, cost.logit_change)
        bench.faults.append(FaultRow(cost.fault, cost.scheme, "scheme", *change, known.failed, known.decoding))
    costs = [faults.cost_of_positions(each, models[each.scheme], *trained) for each in faults.position_faults()]
    bench.faults.extend(
        FaultRow(cost.fault, cost.scheme, "positions", cost.right, cost.faulty, cost.logit_change, (), None)
        for cost in costs
    )
    trains = learning(
        "E13.3",
        "A wrong formula trains to full accuracy: the misprinted sinusoid solves the expressions",
        "this project",
    )
    unseen = Statement(
        "E13.4",
        "Positions that are not restarted in a pack cost relative schemes nothing",
        "the schemes' formulas",
        "accuracy lost in length, for rotary and ALiBi",
        "0",
        lambda lost: abs(lost) < 1e-6,
    )
    restarted = [c for c in costs if c.fault == "positions not restarted in a pack" and c.scheme in ("rotary", "alibi")]
    return [
        bench.judge(trains, by_run(results, [MISPRINTED], lambda run: run.in_length, learned=False)),
        bench.judge(unseen, [c.right["in length"].median - c.faulty["in length"].median for c in restarted]),
    ]


def _accuracy(results: Comparison, scheme: str) -> dict[str, Spread]:
    summary = results.summary[scheme]
    beyond = summary.scores[TWICE][ALL]
    assert beyond is not None  # none of these schemes ends with a table
    return {"in length": summary.in_length, f"at {TWICE}": beyond}
