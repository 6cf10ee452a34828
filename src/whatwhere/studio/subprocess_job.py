"""Jobs in a process of their own, which can be stopped at once, whatever library is running."""

import multiprocessing
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from whatwhere.errors import SettingError, WhatWhereError
from whatwhere.studio.jobs import Report

Result = TypeVar("Result")

_EVERY = 0.1
"""Seconds between two checks of whether it was stopped."""


def run_in_subprocess(function: Callable[..., Result], report: Report, **settings: Any) -> Result:
    """Call function(progress=..., **settings) in a process of its own, and return its result.

    Args:
        function: of a module, for the other process imports it by name; it calls progress(fraction, message).
        report: called with the same; what it raises, such as Stopped, ends the process.
        settings: and the result are pickled, between our own processes alone.
    """
    # A fork would copy locks that other threads hold, and PyTorch's threads not at all.
    context = multiprocessing.get_context("spawn")
    mine, other = context.Pipe(duplex=False)
    process = context.Process(target=_serve, args=(other, function, settings), daemon=True)
    process.start()
    other.close()
    fraction, message = 0.0, "starting"
    try:
        while True:
            report(fraction, message)
            if not mine.poll(_EVERY):
                continue
            kind, value = mine.recv()
            if kind == "progress":
                fraction, message = value
            elif kind == "result":
                result: Result = value
                return result
            elif isinstance(value, WhatWhereError):
                raise value
            else:
                raise RuntimeError(f"the other process failed:\n{value}")
    except EOFError:
        raise SettingError(
            "the process that was at work has ended without a word: most likely memory ran out.\nTake fewer rows."
        ) from None
    finally:
        process.kill()
        process.join()
        process.close()
        mine.close()


def _serve(pipe: Connection, function: Callable[..., Any], settings: dict[str, Any]) -> None:
    try:
        pipe.send(("result", function(progress=lambda *report: pipe.send(("progress", report)), **settings)))
    except WhatWhereError as problem:
        pipe.send(("failed", problem))
    except BrokenPipeError:  # the studio is gone
        return
    except BaseException:
        pipe.send(("failed", traceback.format_exc()))
