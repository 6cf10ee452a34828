"""Jobs: functions that take seconds or minutes, each in a thread of its own, with progress, stopped on request."""

import multiprocessing
import os
import threading
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Literal, TypeVar, final

from whatwhere.errors import SettingError, WhatWhereError

Result = TypeVar("Result")
State = Literal["running", "done", "failed", "stopped"]
Report = Callable[[float, str], None]
"""Called by a job with its progress: the fraction that is done, and a message. It raises Stopped to end the job."""

_NICENESS = 10  # of a subprocess, which runs where the page leaves the processor idle
_EVERY = 0.1  # seconds between two checks of whether a subprocess shall end


class Stopped(Exception):
    """Raised inside a job that was stopped."""


@final
class Job:
    """A function at work in a thread; `message` is what it does, or why it failed. It stops at its next report."""

    def __init__(self, function: Callable[[Report], Any]) -> None:
        self.state: State = "running"
        self.fraction, self.message = 0.0, ""
        self.answer: Any = None
        self.stopping = False
        threading.Thread(target=self._run, args=(function,), daemon=True).start()

    def progress(self) -> dict[str, float | str]:
        """Return its progress, as the page reads it."""
        return {"state": self.state, "fraction": self.fraction, "message": self.message}

    def _report(self, fraction: float, message: str = "") -> None:
        if self.stopping:
            raise Stopped
        self.fraction, self.message = min(max(fraction, 0.0), 1.0), message

    def _run(self, function: Callable[[Report], Any]) -> None:
        state: State = "failed"
        try:
            self.answer = function(self._report)
            self.fraction, state = 1.0, "done"
        except Stopped:
            state = "stopped"
        except WhatWhereError as problem:
            self.message = str(problem)
        except MemoryError:
            self.message = "There is too little memory for this."
        except BaseException:
            self.message = "This failed; the terminal that runs the studio has the error."
            raise  # the thread's own report goes to the terminal
        finally:
            self.state = state  # last: who sees it sees the rest


def run_in_subprocess(function: Callable[..., Result], report: Report, **settings: Any) -> Result:
    """Call function(progress=..., **settings) in a process of its own, which imports it by name; return its result.

    What it reports is reported; what `report` raises, such as Stopped, ends the process.
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
    if hasattr(os, "nice"):
        os.nice(_NICENESS)
    try:
        pipe.send(("result", function(progress=lambda *report: pipe.send(("progress", report)), **settings)))
    except WhatWhereError as problem:
        pipe.send(("failed", problem))
    except BrokenPipeError:  # the studio is gone
        return
    except BaseException:
        pipe.send(("failed", traceback.format_exc()))
