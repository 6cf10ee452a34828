"""The route of float32 products: when oneDNN is chosen, and that PyTorch's switch is always put back."""

from collections.abc import Iterator
from threading import Barrier, Thread
from typing import Any

import pytest
import torch
from torch import Tensor

from whatwhere.kernels import matmul
from whatwhere.kernels.matmul import choose, error, gain, routed
from whatwhere.kernels.switch import plain_kernels

LAYERS = [(96, 32, 48), (40, 48, 8)]

HAS_SWITCH = hasattr(getattr(torch.backends.mkldnn, "matmul", None), "fp32_precision")
needs_switch = pytest.mark.skipif(not HAS_SWITCH, reason="this PyTorch has no switch for products of float32")


def switch() -> str:
    found: str = torch.backends.mkldnn.matmul.fp32_precision
    return found


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget what was chosen before, and afterwards what a test made believe; whatever the environment asks for."""
    monkeypatch.setattr("whatwhere.kernels.switch._PLAIN_BY_ENVIRONMENT", False)
    remembered = (matmul._chosen, matmul._is_float32)
    for function in remembered:
        function.cache_clear()
    yield
    for function in remembered:
        function.cache_clear()
    assert not HAS_SWITCH or switch() == "none"


def pairs(seed: int = 1) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    shapes = [((256, 256), (256, 256)), ((96, 32), (32, 48))]
    return [(torch.randn(a, generator=generator), torch.randn(b, generator=generator)) for a, b in shapes]


def test_an_error_is_the_largest_of_all_products() -> None:
    def wrong(a: Tensor, b: Tensor) -> Tensor:
        return a @ b * (1.25 if len(a) == 96 else 1.001)

    assert error(wrong, pairs()) == pytest.approx(0.25, rel=1e-5)
    assert error(wrong, pairs()[:1]) == pytest.approx(1e-3, rel=1e-3)


def test_the_limit_tells_float32_from_what_is_shorter() -> None:
    def cut(x: Tensor) -> Tensor:
        """Keep the ten bits of TF32."""
        return (x.view(torch.int32) & ~0x1FFF).view(torch.float32)

    assert error(torch.mm, pairs()) < matmul._CLOSE / 2
    assert error(lambda a, b: cut(a) @ cut(b), pairs()) > 100 * matmul._CLOSE
    assert error(lambda a, b: (a.bfloat16() @ b.bfloat16()).float(), pairs()) > 1000 * matmul._CLOSE


def test_a_gain_is_the_median_of_rounds_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that only the two ways move: 3 s and 2 s a product, but one round is disturbed."""
    now, calls = [0.0], []

    def way(name: str, seconds: float) -> Any:
        def multiply(a: Tensor, b: Tensor) -> Tensor:
            calls.append(name)
            now[0] += 1000.0 if len(calls) == 9 else seconds
            return a

        return multiply

    monkeypatch.setattr(matmul, "perf_counter", lambda: now[0])
    assert gain(way("first", 3.0), way("second", 2.0), pairs()) == 1.5
    assert calls == ["first", "first", "second", "second"] * (len(calls) // 4)


@needs_switch
@pytest.mark.parametrize(
    ("errors", "faster", "expected"),
    [
        ((4e-7, 4e-7), 1.9, "onednn"),
        ((4e-7, 4e-7), 1.1, "default"),
        ((4e-7, 4e-7), 0.7, "default"),
        ((3e-3, 3e-3), 1.9, "default"),
        ((4e-7, 3e-3), 1.9, "default"),  # float32 at one size, not at the model's own
        ((3e-3, 4e-7), 1.9, "default"),
    ],
)
def test_onednn_is_chosen_where_it_is_float32_and_faster(
    errors: tuple[float, float], faster: float, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = iter(errors)
    monkeypatch.setattr(matmul, "error", lambda *_: next(found))
    monkeypatch.setattr(matmul, "gain", lambda *_: faster)
    assert choose(LAYERS) == expected
    assert choose(LAYERS) == expected, "nothing is tried a second time"
    with plain_kernels():
        assert choose(LAYERS) == "default"


@needs_switch
def test_the_products_tried_are_those_of_the_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[tuple[Any, Any]] = []
    monkeypatch.setattr(matmul, "gain", lambda first, second, given: tried.extend(given) or 1.0)
    monkeypatch.setattr(matmul, "error", lambda *_: 0.0)
    choose(LAYERS)
    forward, of_input, of_weight = tried[:3]
    assert [(tuple(a.shape), tuple(b.shape)) for a, b in tried[:3]] == [
        ((96, 32), (32, 48)),
        ((96, 48), (48, 32)),
        ((48, 96), (96, 32)),
    ]
    # As autograd has them: one weight, seen both ways, and one input.
    assert forward[1].data_ptr() == of_input[1].data_ptr()
    assert forward[0].data_ptr() == of_weight[1].data_ptr()
    assert len(tried) == 6


@needs_switch
def test_trying_leaves_everything_as_it_was() -> None:
    before = torch.get_rng_state()
    assert choose(LAYERS) in ("default", "onednn")
    assert switch() == "none"
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_float32_matmul_precision() == "highest"  # raises while the switch stands on something


@needs_switch
def test_what_the_program_has_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matmul, "error", lambda *_: 0.0)
    monkeypatch.setattr(matmul, "gain", lambda *_: 9.0)
    torch.backends.mkldnn.matmul.fp32_precision = "ieee"
    try:
        assert choose(LAYERS) == "default"
        with routed("onednn") as taken:
            assert (taken, switch()) == ("default", "ieee")
        assert switch() == "ieee"
    finally:
        torch.backends.mkldnn.matmul.fp32_precision = "none"


def test_a_version_without_the_switch_computes_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(torch.backends.mkldnn, "matmul", None, raising=False)
        assert choose(LAYERS) == "default"
        with routed("onednn") as taken:
            assert taken == "default"


@needs_switch
def test_the_switch_is_put_back_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matmul, "_is_float32", lambda: True)

    def fail() -> None:
        with routed("onednn") as taken:
            raise ZeroDivisionError(taken, switch())

    with pytest.raises(ZeroDivisionError) as caught:
        fail()
    assert caught.value.args == ("onednn", "bf16")
    assert switch() == "none"


@needs_switch
def test_a_route_that_is_not_float32_here_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matmul, "error", lambda *_: 3e-3)
    with routed("onednn") as taken:
        assert (taken, switch()) == ("default", "none")


@needs_switch
def test_the_plain_twin_is_the_default_route() -> None:
    with plain_kernels(), routed("onednn") as taken:
        assert (taken, switch()) == ("default", "none")


@needs_switch
def test_threads_share_the_switch_and_the_last_puts_it_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matmul, "_is_float32", lambda: True)
    both_in, first_out, seen = Barrier(2), Barrier(2), []

    def first() -> None:
        with routed("onednn"):
            both_in.wait(30)
        first_out.wait(30)

    thread = Thread(target=first)
    thread.start()
    with routed("onednn"):
        both_in.wait(30)
        first_out.wait(30)
        seen.append(switch())
    thread.join()
    assert [*seen, switch()] == ["bf16", "none"]


def test_products_within_a_route_are_float32() -> None:
    """On every machine: where oneDNN would round to bfloat16, the route is not taken."""
    with routed("onednn"):
        assert error(torch.mm, pairs()) < 2e-6
        assert error(lambda a, b: torch.nn.functional.linear(a, b.T.contiguous()), pairs()) < 2e-6
