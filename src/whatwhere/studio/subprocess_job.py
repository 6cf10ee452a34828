"""Work in a process of its own: it ends at once where nobody waits for it, whatever library is at work."""

import multiprocessing
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from whatwhere.errors import SettingError, WhatWhereError
from whatwhere.studio.jobs import Report

Found = TypeVar("Found")

_EVERY = 0.1
"""Seconds between two looks at whether it shall end."""


def run_apart(work: Callable[..., Found], report: Report, **settings: Any) -> Found:
    """Call work(progress=..., **settings) in a process of its own, and give what it gives.

    Args:
        work: a function of a module, for another process finds it by its name; it calls progress(share, message).
        report: is told the same; what it raises, such as Stopped, ends the process.
        settings: and the result travel as pickles, between our own processes alone.
    """
    # A fork would copy locks that other threads hold, and PyTorch's threads not at all.
    context = multiprocessing.get_context("spawn")
    mine, other = context.Pipe(duplex=False)
    process = context.Process(target=_serve, args=(other, work, settings), daemon=True)
    process.start()
    other.close()
    share, said = 0.0, "starting"
    try:
        while True:
            report(share, said)
            if not mine.poll(_EVERY):
                continue
            kind, value = mine.recv()
            if kind == "told":
                share, said = value
            elif kind == "found":
                found: Found = value
                return found
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


def _serve(pipe: Connection, work: Callable[..., Any], settings: dict[str, Any]) -> None:
    try:
        pipe.send(("found", work(progress=lambda share, said: pipe.send(("told", (share, said))), **settings)))
    except WhatWhereError as problem:
        pipe.send(("failed", problem))
    except BrokenPipeError:  # the studio is gone
        return
    except BaseException:
        pipe.send(("failed", traceback.format_exc()))
