"""Engines for many machines as `concurrent.futures.Executor`: Dask has one, submitit and Ray are adapted to it here."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ParamSpec, TypeVar
from urllib.parse import urlsplit

from whatwhere.comparison.worker_processes import ATTEMPTS
from whatwhere.errors import MissingExtra, ResultsError, SettingError

P = ParamSpec("P")
R = TypeVar("R")

_CONNECT_IN = 15  # seconds
_DASK = ("tcp", "tls", "ws", "wss", "ucx", "ucxx")
"""Protocols of Dask between machines; the last two need no TCP."""
_POLL_EVERY = 0.5  # seconds
_JOB_MINUTES = 240
"""The time limit of a job of SLURM; submitit's own five minutes would end longer runs."""


class SubmititExecutor(Executor):
    """Submit each call as a job of submitit, whose own executors are none of `concurrent.futures`.

    Args:
        executor: an AutoExecutor, or whatever has its `submit(function, *args)`, which returns jobs with `done()`,
            `result()` and `cancel()`.
        lost: the errors of a job that ended without a result, such as one that was killed; it is submitted again.
    """

    def __init__(self, executor: Any, lost: type[Exception]) -> None:
        self._executor, self._lost = executor, lost
        self._jobs: dict[Future[Any], tuple[Any, tuple[Any, ...], int]] = {}
        self._closed = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Submit a call as a job."""
        future: Future[R] = Future()
        call = (fn, args, kwargs)
        self._jobs[future] = (self._executor.submit(_outcome, *call), call, 1)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Cancel the jobs that have not ended."""
        self._closed.set()
        self._watcher.join()
        for job, *_ in self._jobs.values():
            job.cancel()

    def _watch(self) -> None:
        while not self._closed.wait(_POLL_EVERY):
            for future, (job, call, attempt) in list(self._jobs.items()):
                if future.cancelled():
                    job.cancel()
                elif not job.done():
                    continue
                elif (outcome := self._read(job, attempt)) is None:
                    self._jobs[future] = (self._executor.submit(_outcome, *call), call, attempt + 1)
                    continue
                else:
                    _settle(future, outcome)
                del self._jobs[future]

    def _read(self, job: Any, attempt: int) -> "tuple[bool, Any] | None":
        """Return the outcome of a job that is done, or None where it is to be submitted again."""
        try:
            outcome: tuple[bool, Any] = job.result()
        except self._lost as problem:
            if attempt < ATTEMPTS:
                return None
            return False, ResultsError(
                f"its job ended without a result, {attempt} times: {str(problem).splitlines()[0]}"
            )
        except Exception as problem:
            return False, problem
        return outcome


class RayExecutor(Executor):
    """Submit each call as a task of Ray, which starts it again where its worker died.

    Args:
        ray: the module, connected; or whatever has its `remote`.
    """

    def __init__(self, ray: Any) -> None:
        self._task = ray.remote(num_cpus=1, max_retries=ATTEMPTS - 1)(_outcome)

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Submit a call as a task."""
        future: Future[R] = Future()

        def settle(done: "Future[tuple[bool, Any]]") -> None:
            problem = done.exception()
            _settle(future, done.result() if problem is None else (False, problem))

        self._task.remote(fn, args, kwargs).future().add_done_callback(settle)
        return future


def _outcome(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bool, Any]:
    """Return whether a call succeeded, and its result or its error: engines wrap what is raised in errors of theirs."""
    try:
        return True, fn(*args, **kwargs)
    except Exception as problem:
        return False, problem


def _settle(future: Future[Any], outcome: tuple[bool, Any]) -> None:
    succeeded, value = outcome
    if not future.set_running_or_notify_cancel():
        return
    if succeeded:
        future.set_result(value)
    else:
        future.set_exception(value)


@contextmanager
def _dask(given: str, folder: Path) -> Iterator[Executor]:
    address = given if "://" in given else f"tcp://{given}"
    host, port = _host_and_port(address, _DASK)
    if not host or not port:
        raise SettingError(
            "executor 'dask' needs the address of a scheduler, dask:tcp://HOST:PORT such as dask:tcp://10.0.0.1:8786, "
            f"but got {given!r}."
        )
    try:
        from distributed import Client
    except ImportError:
        raise _missing("Dask", "dask") from None
    try:
        if not address.startswith("ucx"):
            _require_listener(host, port)
        # A Client that fails prints a traceback when it is removed, after half a minute.
        with ThreadPoolExecutor(1) as thread:  # where no other loop of asyncio runs, as in a notebook
            thread.submit(asyncio.run, _greet(address)).result()
        client: Any = Client(address, timeout=_CONNECT_IN, set_as_default=False)  # type: ignore[no-untyped-call]
    except Exception as problem:  # it raises OSError, ValueError, TypeError and others
        raise SettingError(
            f"no Dask scheduler answers at {address}: {_first_line(problem)}.\nStart one: dask scheduler; then "
            "workers: dask worker ADDRESS."
        ) from None
    with client:
        yield client.get_executor(pure=False, retries=ATTEMPTS - 1)


def _require_listener(host: str, port: int) -> None:
    """Raise OSError at once where nobody listens: engines would try again for seconds, or minutes."""
    socket.create_connection((host, port), _CONNECT_IN).close()


def _host_and_port(address: str, schemes: Sequence[str]) -> tuple[str, int]:
    """Return the host and the port of an address; nothing where it has none."""
    try:
        parts = urlsplit(address)
        complete = parts.scheme in schemes and not (parts.path or parts.query or parts.fragment or parts.username)
        return (parts.hostname or "", parts.port or 0) if complete else ("", 0)
    except ValueError:  # a port beyond 65,535, half a bracket
        return "", 0


async def _greet(address: str) -> None:
    """Wait for the answer of a scheduler."""
    from distributed import Security, rpc

    security: Any = Security()  # type: ignore[no-untyped-call]
    given = security.get_connection_args("client")
    if address.startswith(("tls", "wss")) and given["ssl_context"] is None:
        raise ValueError("Dask has no certificates for TLS, see distributed.comm.tls in its configuration")
    async with asyncio.timeout(_CONNECT_IN):
        remote: Any = rpc(address, timeout=_CONNECT_IN, connection_args=given)  # type: ignore[no-untyped-call]
        async with remote as scheduler:
            if "workers" not in await scheduler.identity():
                raise ValueError("it is a part of Dask, but no scheduler")


def _first_line(problem: Exception) -> str:
    return (str(problem).strip() or type(problem).__name__).splitlines()[0].rstrip(".")


@contextmanager
def _submitit(given: str, folder: Path) -> Iterator[Executor]:
    partition, *options = given.split(",")
    if not partition:
        raise SettingError("executor 'submitit' needs a partition: submitit:gpu, or submitit:gpu,timeout_min=600.")
    try:
        import submitit
    except ImportError:
        raise _missing("submitit", "submitit") from None
    parameters: dict[str, Any] = {"timeout_min": _JOB_MINUTES, "cpus_per_task": 1, "name": "whatwhere"}
    parameters |= {} if partition == "local" else {"slurm_partition": partition}
    for option in options:
        name, _, value = option.partition("=")
        parameters[name.strip()] = int(value) if value.strip().isdecimal() else value.strip()

    def made(logs: Path) -> Any:
        executor = submitit.AutoExecutor(folder=logs / "%j", cluster="local" if partition == "local" else "slurm")
        executor.update_parameters(**parameters)
        return executor

    try:
        with TemporaryDirectory() as elsewhere:  # it makes the folder before it looks at the parameters
            made(Path(elsewhere))
        executor = made(folder / "submitit")
    except Exception as problem:  # it raises RuntimeError, NameError, TypeError and others
        reason = _first_line(problem).partition(" Valid arguments")[0]
        raise SettingError(
            f"submitit cannot use {given!r}: {reason.rstrip('.')}.\nPass a partition and submitit's parameters, such "
            "as submitit:gpu,timeout_min=600,mem_gb=8, or submitit:local."
        ) from None
    with SubmititExecutor(executor, submitit.core.utils.UncompletedJobError) as adapted:
        yield adapted


@contextmanager
def _ray(address: str, folder: Path) -> Iterator[Executor]:
    try:
        import ray
    except ImportError:
        raise _missing("Ray", "ray") from None
    if ray.is_initialized():
        yield RayExecutor(ray)
        return
    host, port = _host_and_port(address if "://" in address else f"//{address}", ("", "ray"))
    try:
        if host and port:
            _require_listener(host, port)
        ray.init(address=address or None, log_to_driver=False, logging_level="ERROR")
    except Exception as problem:  # it raises ConnectionError, ValueError, RuntimeError and others
        raise SettingError(
            f"Ray cannot be reached at {address!r}: {_first_line(problem)}.\nStart it: ray start --head."
        ) from None
    try:
        yield RayExecutor(ray)
    finally:
        ray.shutdown()


def _missing(package: str, extra: str) -> MissingExtra:
    return MissingExtra(f"{package} is not installed: pip install 'whatwhere[{extra}]'.")


ENGINES: dict[str, Callable[[str, Path], AbstractContextManager[Executor]]] = {
    "dask": _dask,
    "submitit": _submitit,
    "ray": _ray,
}
"""Each takes an address, and a folder on a disk that workers share; it raises SettingError or MissingExtra."""
