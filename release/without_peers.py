"""A plugin of pytest for an environment without peers: a test that imports one is skipped, and says which."""

from collections.abc import Generator

import pytest

PEERS = ("transformers", "peft", "gensim", "positional_encodings", "rotary_embedding_torch", "x_transformers")
"""Other people's code that tests compare with; its versions do not go with the oldest ones that whatwhere takes."""


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Skip a file, or a folder by its conftest.py, that imports a peer at its top."""
    report = yield
    if report.failed:
        for peer in PEERS:
            if f"No module named '{peer}" in str(report.longrepr):
                report.outcome = "skipped"
                report.longrepr = (str(collector.path), 1, f"Skipped: {peer} is not installed")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, None, None]:
    """Skip a test that imports a peer, by itself, in a fixture or through the library, whose error names it."""
    try:
        yield
    except ImportError as problem:
        missing = [peer for peer in PEERS if problem.name == peer or peer in str(problem)]
        if not missing:
            raise
        pytest.skip(f"{missing[0]} is not installed")


pytest_runtest_call = pytest_runtest_setup
