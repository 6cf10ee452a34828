"""The studio's server: transport only. The answers are in api/, access control in security.py."""

import json
import socket
import threading
import webbrowser
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from anyio import to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from whatwhere.errors import SettingError, WhatWhereError
from whatwhere.studio.api import JOBS, QUERIES, JobFunction, Query
from whatwhere.studio.export import PAGE as PAGE
from whatwhere.studio.export import check_page
from whatwhere.studio.jobs import Job, Jobs
from whatwhere.studio.security import BLOCKED, HOSTS, LARGEST_HEAD, Guard, Key, confined
from whatwhere.studio.session import Session
from whatwhere.studio.wire import MEDIA_TYPE, pack

LARGEST_REQUEST = 1 << 17
PATIENCE = 20.0
"""Seconds in which the settings of a query must be there."""
AT_ONCE, CONNECTIONS = 4, 64
"""Queries that are answered at a time, and connections; more are refused until later."""

_KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".txt": "text/plain"}


def create_app(
    session: Session,
    key: Key,
    page: Path = PAGE,
    queries: Mapping[str, Query] = QUERIES,
    jobs: Mapping[str, JobFunction] = JOBS,
) -> ASGIApp:
    """Return the application that serves one session to the holder of one key."""
    started = Jobs()

    @cache
    def limit() -> anyio.CapacityLimiter:  # belongs to the event loop, which runs only when a query comes
        return anyio.CapacityLimiter(AT_ONCE)

    async def asset(request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        try:
            path = confined(page, name)
            return FileResponse(path, media_type=_KINDS[path.suffix])
        except (SettingError, KeyError):
            raise HTTPException(404, "There is no such page.") from None

    async def query(request: Request) -> Response:
        function = _named(queries, request)
        settings = await _settings(request)
        packed = await to_thread.run_sync(lambda: pack(function(session, settings)), limiter=limit())
        return Response(packed, media_type=MEDIA_TYPE)

    async def start(request: Request) -> Response:
        function = _named(jobs, request)
        settings = await _settings(request)
        job = started.start(lambda report: function(session, settings, report))
        return JSONResponse(job.progress(), 202)

    async def answer(request: Request) -> Response:
        job = started.find(request.path_params["number"])
        if job.answer is None:
            raise HTTPException(409, f"This job is {job.state}.")
        return Response(await to_thread.run_sync(pack, job.answer), media_type=MEDIA_TYPE)

    async def stop(request: Request) -> Response:
        return JSONResponse(started.stop(request.path_params["number"]).progress())

    async def events(request: Request) -> Response:
        job = started.find(request.path_params["number"])
        return StreamingResponse(_events(job), media_type="text/event-stream")

    routes = [
        Route("/", asset, methods=["GET"]),
        Route("/query/{name}", query, methods=["POST"]),
        Route("/jobs/{name}", start, methods=["POST"]),
        Route("/jobs/{number:int}", answer, methods=["GET"]),
        Route("/jobs/{number:int}", stop, methods=["DELETE"]),
        Route("/jobs/{number:int}/events", events, methods=["GET"]),
        Route("/{name}", asset, methods=["GET"]),
    ]
    handlers: Mapping[Any, Any] = {WhatWhereError: _ours, HTTPException: _http, Exception: _unexpected}
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False
    return TrustedHostMiddleware(Guard(app, key), HOSTS)


def _named(functions: Mapping[str, Any], request: Request) -> Any:
    function = functions.get(request.path_params["name"])
    if function is None:
        raise HTTPException(404, "The studio answers nothing of this name.")
    return function


async def _events(job: Job, every: float = 0.1, patience: float = 10.0) -> AsyncIterator[str]:
    """Yield the progress of a job until its end as server-sent events; comments show whether anybody reads."""
    seen, silent = -1, 0.0
    while True:
        over = job.state != "running"  # read first: a change after this is sent in the next round
        if job.changes != seen:
            seen, silent = job.changes, 0.0
            yield f"data: {json.dumps(job.progress())}\n\n"
        elif silent > patience:
            silent = 0.0
            yield ": still here\n\n"
        if over:
            return
        await anyio.sleep(every)
        silent += every


async def _settings(request: Request) -> dict[str, Any]:
    """Read the settings of a query, a JSON object of a bounded size."""
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind != "application/json":  # what a form of another page cannot send
        raise HTTPException(415, "The settings of a query are application/json.")
    body = bytearray()
    try:
        with anyio.fail_after(PATIENCE):
            async for part in request.stream():
                body += part
                if len(body) > LARGEST_REQUEST:
                    raise HTTPException(413, f"A query has at most {LARGEST_REQUEST:,} bytes.")
        settings = json.loads(body or b"{}")
    except (ClientDisconnect, TimeoutError):
        raise HTTPException(400, "The query broke off.") from None
    except (ValueError, RecursionError):
        settings = None
    if not isinstance(settings, dict):
        raise HTTPException(400, "The settings of a query are a JSON object.")
    return settings


async def _ours(request: Request, problem: WhatWhereError) -> Response:
    return JSONResponse({"error": type(problem).__name__, "message": str(problem)}, 400)


async def _http(request: Request, problem: HTTPException) -> Response:
    return JSONResponse({"error": "request", "message": problem.detail}, problem.status_code)


async def _unexpected(request: Request, problem: Exception) -> Response:
    # Starlette raises it again behind this answer, so that the terminal shows where it happened.
    message = "The studio could not answer this; the terminal that runs it has the error."
    if isinstance(problem, MemoryError):
        message = "There is too little memory for this. Choose a smaller number."
    return JSONResponse({"error": "internal", "message": message}, 500)


def bound(port: int | None = None) -> socket.socket:
    """Open a socket of 127.0.0.1, at a port of the system's choosing that browsers do not refuse.

    Examples:
        >>> with bound() as one:
        ...     one.getsockname()[0]
        '127.0.0.1'
    """
    if port in BLOCKED:
        raise SettingError(f"browsers refuse to open port {port}.\nChoose another, or leave --port out.")
    while True:
        # The protocol is named because asyncio sends small answers at once (TCP_NODELAY) only where it is.
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            if port is not None and socket.SO_REUSEADDR and not hasattr(socket, "SO_EXCLUSIVEADDRUSE"):
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # again, right after the last time
            listening.bind(("127.0.0.1", port or 0))
            listening.listen(CONNECTIONS)
        except (OSError, OverflowError) as problem:
            listening.close()
            reason = getattr(problem, "strerror", None) or problem
            raise SettingError(
                f"port {port} cannot be opened: {reason}.\nChoose another, or leave --port out."
            ) from None
        if listening.getsockname()[1] not in BLOCKED:
            return listening
        listening.close()


def serve(session: Session, port: int | None, browser: bool, on_start: Callable[[str, int], None]) -> None:
    """Serve a session until Ctrl-C.

    Args:
        port: None is one of the system's choosing.
        browser: whether to open the page in one.
    """
    check_page(PAGE)
    key, listening = Key(), bound(port)
    address = _address(listening, key)
    config = _config(create_app(session, key), "warning")
    # What the first view needs is read while the browser starts; the view itself reports what is wrong with it.
    threading.Thread(target=_warm, args=(session,), daemon=True).start()
    on_start(address, listening.getsockname()[1])
    if browser:
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
    try:
        uvicorn.Server(config).run(sockets=[listening])
    except KeyboardInterrupt:  # raised again by uvicorn once all is closed
        pass
    finally:
        listening.close()


@contextmanager
def served(
    session: Session,
    page: Path = PAGE,
    queries: Mapping[str, Query] = QUERIES,
    jobs: Mapping[str, JobFunction] = JOBS,
) -> Iterator[str]:
    """Serve a session from a thread of this process, and yield the address, with its key.

    Args:
        queries, jobs: as in `create_app`.
    """
    key, listening = Key(), bound()
    server = uvicorn.Server(_config(create_app(session, key, page, queries, jobs), "error"))
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    try:
        yield _address(listening, key)
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


def _config(app: ASGIApp, log_level: str) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_level=log_level,
        access_log=False,
        server_header=False,
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=1,
        http="h11",
        h11_max_incomplete_event_size=LARGEST_HEAD,
        lifespan="off",
        ws="none",
    )


def _address(listening: socket.socket, key: Key) -> str:
    return f"http://127.0.0.1:{listening.getsockname()[1]}/?token={key.token}"


def _warm(session: Session) -> None:
    try:
        session.warm()
    except WhatWhereError:
        return
