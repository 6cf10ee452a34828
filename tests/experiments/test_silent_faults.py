"""Silent faults: the right way changes nothing, the wrong way what it should, and the laws detect faulty schemes."""

import pytest
import torch

from experiments.silent_faults import cost, position_faults, scheme_faults, scheme_laws
from whatwhere.comparison.experiment import make_task
from whatwhere.comparison.measure import evaluation_set
from whatwhere.comparison.settings import make_settings
from whatwhere.comparison.train import build
from whatwhere.position.positions import positions

SETTINGS = make_settings("expressions", [8], steps=1, device="cpu", test_sequences=20)
TASK = make_task("expressions", "decoder", None, [])
RELATIVE = ("rotary", "alibi")


@pytest.fixture(scope="module")
def models():
    """Return an untrained model of each scheme: faults change the logits of any model."""
    return {name: build(name, 0, TASK, SETTINGS).eval() for name in ("sinusoidal", "rotary", "alibi")}


def answer(model, ids, p):
    with torch.no_grad():
        return model(ids, -1, p)


@pytest.mark.parametrize("fault", position_faults(), ids=lambda fault: f"{fault.scheme}, {fault.name}")
def test_faulty_positions_alone_change_the_logits_of_all_but_relative_schemes(models, fault):
    model, ids = models[fault.scheme], evaluation_set(TASK, 4, SETTINGS).ids
    alone = answer(model, ids, positions(ids.shape[1]))
    torch.testing.assert_close(answer(model, *fault.right(ids)), alone, atol=1e-4, rtol=0)
    found = cost(fault, [model], TASK, SETTINGS, 8)
    unmoved = fault.scheme in RELATIVE and fault.name == "positions not restarted in a pack"
    assert (found.logit_change.median < 1e-4) == unmoved
    assert set(found.right) == set(found.faulty) == {"in length", "at 8"}


@pytest.mark.parametrize("fault", scheme_faults(), ids=lambda fault: f"{fault.name}, {fault.shift}")
def test_faulty_schemes_change_the_logits_and_not_the_model(models, fault):
    model, ids = models[fault.scheme], evaluation_set(TASK, 4, SETTINGS).ids
    before = answer(model, ids, positions(ids.shape[1]))
    laws = scheme_laws()[fault.name, fault.scheme]
    assert cost(fault, [model], TASK, SETTINGS, 8, laws).logit_change.median > 1e-4
    assert torch.equal(answer(model, ids, positions(ids.shape[1])), before)


def test_every_faulty_scheme_breaks_a_law_and_none_that_of_decoding():
    laws = scheme_laws()
    assert len(laws) == 6
    assert all("formula" in each.failed for each in laws.values())
    assert all(each.decoding for each in laws.values())
