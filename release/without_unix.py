"""A plugin of pytest that takes away what Windows lacks: `python -m pytest -p release.without_unix --collect-only`.

It shows that tests can be collected and pages can be written there, not that they pass. Packages of others are loaded
first, since their files for this system need what is taken away.
"""

import importlib
import os
import signal
import sys
import warnings
from contextlib import suppress

import pytest

MODULES = ("fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty")
CALLS = (
    "fork", "forkpty", "geteuid", "getpgid", "getuid", "killpg", "mkfifo", "posix_fadvise", "posix_fallocate", "pread",
    "preadv", "pwrite", "pwritev", "sched_getaffinity", "setsid", "sysconf", "uname", "waitid",
)  # fmt: skip
"""Names of os."""
SIGNALS = ("SIGALRM", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGUSR1", "SIGUSR2", "alarm", "setitimer")

OTHERS = (
    "whatwhere.atomic",  # which goes by the name of the system
    "torch.distributed", "torch.distributed.tensor", "torch.distributed.fsdp", "torch.multiprocessing", "torch._dynamo",
    "transformers", "starlette.testclient", "uvicorn", "hypothesis", "httpx2", "jsonschema", "distributed", "zensical",
    "openTSNE", "scipy.stats", "typer.testing", "nbformat", "huggingface_hub", "peft", "x_transformers", "gguf",
)  # fmt: skip
"""Packages of others that tests import at their top."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """Load others, then take away, before the first test is collected."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in OTHERS:
            with suppress(ImportError):
                importlib.import_module(name)
    for name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment]  # an import of it then fails
    for name in CALLS:
        vars(os).pop(name, None)
    for name in SIGNALS:
        vars(signal).pop(name, None)
