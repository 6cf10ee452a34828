"""The studio's server: transport only. The answers are in api/, access control in security.py."""

import asyncio
import json
import mimetypes
import socket
import threading
import webbrowser
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any

import anyio
import h11
import uvicorn
from anyio import to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from whatwhere.errors import SettingError, WhatWhereError
from whatwhere.studio.api import JOBS, QUERIES, JobFunction, Query
from whatwhere.studio.export import PAGE as PAGE
from whatwhere.studio.export import check_page
from whatwhere.studio.jobs import Job, Jobs
from whatwhere.studio.security import BLOCKED, LARGEST_HEAD, Guard, Key, confined
from whatwhere.studio.session import Session
from whatwhere.studio.wire import MEDIA_TYPE, pack

LARGEST_REQUEST = 1 << 17
AT_ONCE, CONNECTIONS = 4, 64
"""Queries that are answered at a time, and connections; more are refused until later."""
PATIENCE = 20.0
"""Seconds that a client has to send a request, and to take some part of the answer."""
SPARE = 8
"""Connections that are kept for new clients, by closing the oldest that has sent no request yet."""

_ASSETS = (".html", ".js", ".css", ".txt")


def create_app(
    session: Session,
    key: Key,
    page: Path = PAGE,
    queries: Mapping[str, Query] = QUERIES,
    jobs: Mapping[str, JobFunction] = JOBS,
) -> ASGIApp:
    """Return the application that serves one session to the holder of one key.

    Args:
        queries: functions that are answered at once, by name.
        jobs: functions that are started as jobs, by name.
    """
    server = _Server(session, page, queries, jobs)
    routes = [
        Route("/", server.asset, methods=["GET"]),
        Route("/query/{name}", server.query, methods=["POST"]),
        Route("/jobs/{name}", server.start, methods=["POST"]),
        Route("/jobs/{number:int}", server.answer, methods=["GET"]),
        Route("/jobs/{number:int}", server.stop, methods=["DELETE"]),
        Route("/jobs/{number:int}/events", server.events, methods=["GET"]),
        Route("/{name}", server.asset, methods=["GET"]),
    ]
    handlers: Mapping[Any, Any] = {WhatWhereError: _ours, HTTPException: _http, Exception: _unexpected}
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False
    return Guard(app, key)


class _Server:
    """What the routes share."""

    def __init__(
        self, session: Session, page: Path, queries: Mapping[str, Query], jobs: Mapping[str, JobFunction]
    ) -> None:
        self._session, self._page, self._queries, self._job_functions = session, page, queries, jobs
        self._jobs = Jobs()
        self._limit: anyio.CapacityLimiter | None = None

    async def asset(self, request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        if not name.endswith(_ASSETS):
            raise HTTPException(404, "There is no such page.")
        try:
            path = confined(self._page, name)
        except SettingError:
            raise HTTPException(404, "There is no such page.") from None
        kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        # guess_type reads the system's own table, which may be wrong for these two.
        kind = {".js": "text/javascript", ".css": "text/css"}.get(path.suffix, kind)
        return FileResponse(path, media_type=kind)

    async def query(self, request: Request) -> Response:
        query = self._queries.get(request.path_params["name"])
        if query is None:
            raise HTTPException(404, "There is no such query.")
        settings = await _settings(request)
        if self._limit is None:  # belongs to the event loop, which runs only now
            self._limit = anyio.CapacityLimiter(AT_ONCE)
        if not await _turn(self._limit, request):
            raise HTTPException(400, "The query broke off.")
        try:
            packed = await to_thread.run_sync(lambda: pack(query(self._session, settings)))
        finally:
            self._limit.release_on_behalf_of(request)
        return Response(packed, media_type=MEDIA_TYPE)

    async def start(self, request: Request) -> Response:
        function = self._job_functions.get(request.path_params["name"])
        if function is None:
            raise HTTPException(404, "There is no such job.")
        settings = await _settings(request)
        job = self._jobs.start(lambda report: function(self._session, settings, report))
        return JSONResponse(job.progress(), 202)

    async def answer(self, request: Request) -> Response:
        job = self._jobs.find(request.path_params["number"])
        if job.answer is None:
            raise HTTPException(409, f"This job is {job.state}.")
        return Response(await to_thread.run_sync(pack, job.answer), media_type=MEDIA_TYPE)

    async def stop(self, request: Request) -> Response:
        return JSONResponse(self._jobs.stop(request.path_params["number"]).progress())

    async def events(self, request: Request) -> Response:
        job = self._jobs.find(request.path_params["number"])
        return StreamingResponse(_events(job), media_type="text/event-stream")


async def _turn(limit: anyio.CapacityLimiter, request: Request) -> bool:
    """Wait until a query may be answered, and return whether anybody still waits for its answer."""
    taken = False

    async def leave() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(leave)
        await limit.acquire_on_behalf_of(request)
        taken = True
        group.cancel_scope.cancel()
    return taken


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
        async for part in request.stream():
            body += part
            if len(body) > LARGEST_REQUEST:
                raise HTTPException(413, f"A query has at most {LARGEST_REQUEST:,} bytes.")
    except ClientDisconnect:
        raise HTTPException(400, "The query broke off.") from None
    try:
        settings = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        raise HTTPException(400, "The settings of a query are a JSON object; these are no JSON.") from None
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
        on_start: called with the address to open, and the port.
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
        page: the folder of the page's files.
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
        http=_Connection,
        h11_max_incomplete_event_size=LARGEST_HEAD,
        lifespan="off",
        ws="none",
    )


class _Connection(H11Protocol):
    """A connection that ends where the client keeps it waiting: for a request, or to take an answer.

    Without that, as many clients as there are connections, each sending a byte at a time, would shut out all others.
    """

    since: float
    _sending: asyncio.TimerHandle | None = None
    _taking: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        others = [each for each in self.connections if isinstance(each, _Connection)]
        others = [each for each in others if not each.transport.is_closing()]  # these count until the loop's next turn
        waiting = [each for each in others if each.cycle is None]
        if waiting and len(others) >= CONNECTIONS - SPARE:
            min(waiting, key=attrgetter("since")).transport.abort()
        super().connection_made(transport)
        transport.set_write_buffer_limits(0)  # so that any rest that is not taken counts as waiting
        self.since = self.loop.time()
        self._sending = self.loop.call_later(PATIENCE, transport.abort)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        incomplete = self.conn.their_state in (h11.IDLE, h11.SEND_BODY)
        if incomplete and self._sending is None:
            self._sending = self.loop.call_later(PATIENCE, self.transport.abort)
        elif not incomplete:
            self._sending = _cancelled(self._sending)

    def send_400_response(self, msg: str) -> None:
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:  # an answer has begun: what is no HTTP came behind the request
            self.transport.abort()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._taking = _cancelled(self._taking)
        self._check_taken(self.transport.get_write_buffer_size() + 1)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._taking = _cancelled(self._taking)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._sending, self._taking = _cancelled(self._sending), _cancelled(self._taking)

    def _check_taken(self, before: int) -> None:
        """Close the connection if nothing of the answer was taken since the last time."""
        left = self.transport.get_write_buffer_size()
        if left < before:
            self._taking = self.loop.call_later(PATIENCE, self._check_taken, left)
        else:
            self.transport.abort()


def _cancelled(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    """Cancel a timer, and return what stands for none."""
    if timer is not None:
        timer.cancel()
    return None


def _address(listening: socket.socket, key: Key) -> str:
    return f"http://127.0.0.1:{listening.getsockname()[1]}/?token={key.token}"


def _warm(session: Session) -> None:
    try:
        session.warm()
    except WhatWhereError:
        return
