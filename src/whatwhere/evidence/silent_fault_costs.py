"""E13: what silent faults about positions cost trained models, and which law of `whatwhere.testing` detects each."""

from whatwhere.comparison.plan import make_task
from whatwhere.comparison.saved_model import load_model
from whatwhere.evidence import silent_faults as faults
from whatwhere.evidence.bench import LEARNED, Bench, by_run
from whatwhere.evidence.faulty_schemes import Bfloat16Rotary, divided_alibi, misprinted_sinusoid, other_theta
from whatwhere.evidence.length import TWICE
from whatwhere.evidence.record import FaultRow, Result, Statement
from whatwhere.where.query_key.rotary import Rotary
from whatwhere.where.scaling import YaRN

TRAINED = ("sinusoidal", "rotary", "alibi")
MISPRINTED, DIVIDED = "misprinted sinusoid", "alibi divided by the root of head_dim"
HEAD_DIM = 16

LAWS = "E13.1"


def silent_fault_costs(bench: Bench) -> list[Result]:
    """Check faulty schemes by the laws; in the full scope also train, and measure what each fault costs."""
    laws = scheme_laws()
    bench.faults.extend(
        FaultRow(fault, scheme, "scheme", {}, {}, None, checked.failed, checked.decoding)
        for (fault, scheme), checked in laws.items()
    )
    detected = Statement(
        LAWS,
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
    return results if bench.quick else [*results, *_costs(bench, laws)]


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
        ("pairs of the other layout", "rotary"): faults.rotary_laws(Rotary(HEAD_DIM, interleaved=True), rotary),
        ("theta of another model, 500,000", "rotary"): faults.rotary_laws(other_theta(HEAD_DIM), rotary),
        ("angles in bfloat16", "rotary"): faults.rotary_laws(Bfloat16Rotary(HEAD_DIM), rotary),
        ("YaRN without its magnitude", "rotary-yarn"): faults.rotary_laws(unmagnified, Rotary(HEAD_DIM, scaling=yarn)),
        (DIVIDED, "alibi"): faults.divided_alibi_laws(),
    }


def _costs(bench: Bench, laws: dict[tuple[str, str], faults.Laws]) -> list[Result]:
    schemes = (*TRAINED, (MISPRINTED, misprinted_sinusoid), (DIVIDED, divided_alibi))
    results = bench.compare("expressions", schemes, 3, task="expressions", lengths=(TWICE,))
    settings = results.record.settings
    task = make_task("expressions", settings.direction, settings.trained, [])
    models = {scheme: [load_model(results, run) for run in results.runs if run.scheme == scheme] for scheme in TRAINED}
    costs = [
        *(faults.cost_of_scheme(each, models[each.scheme], task, settings, TWICE) for each in faults.scheme_faults()),
        *(
            faults.cost_of_positions(each, models[each.scheme], task, settings, TWICE)
            for each in faults.position_faults()
        ),
    ]
    for cost in costs:
        known = next((laws[key] for key in laws if cost.fault.startswith(key[0].split(",")[0])), None)
        accuracy = (cost.right, cost.faulty, cost.logit_change)
        if known is None:
            row = FaultRow(cost.fault, cost.scheme, "positions", *accuracy, (), None)
        else:
            row = FaultRow(cost.fault, cost.scheme, "scheme", *accuracy, known.failed, known.decoding)
        bench.faults.append(row)
    trains = Statement(
        "E13.3",
        "A wrong formula trains to full accuracy: the misprinted sinusoid solves the expressions",
        "this project",
        "accuracy in length",
        "at least 99 %",
        lambda share: share >= LEARNED,
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
