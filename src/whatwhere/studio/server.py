"""The studio's server: transport only. What is answered is in api/, who may ask in security.py."""

import json
import mimetypes
import socket
import threading
import webbrowser
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from anyio import to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from whatwhere.errors import SettingError, WhatWhereError
from whatwhere.studio.api import QUESTIONS, WORKS, Ask, Work
from whatwhere.studio.bundle import PAGE as PAGE
from whatwhere.studio.bundle import check_page
from whatwhere.studio.jobs import Job, Jobs
from whatwhere.studio.security import BLOCKED, Guard, Key, confined
from whatwhere.studio.session import Source
from whatwhere.studio.wire import MEDIA_TYPE, pack

LARGEST_REQUEST = 1 << 17
AT_ONCE, CONNECTIONS = 4, 64
"""Questions that are worked on at a time, and connections; what is beyond is told to come later."""

_ASSETS = (".html", ".js", ".css", ".txt")


def create_app(
    source: Source,
    key: Key,
    page: Path = PAGE,
    questions: Mapping[str, Ask] = QUESTIONS,
    works: Mapping[str, Work] = WORKS,
) -> ASGIApp:
    """Make the application that serves one source to the holder of one key.

    Args:
        questions: what may be asked, by name.
        works: what may be started as a job, by name.
    """
    server = _Server(source, page, questions, works)
    routes = [
        Route("/", server.asset, methods=["GET"]),
        Route("/ask/{name}", server.ask, methods=["POST"]),
        Route("/jobs/{name}", server.start, methods=["POST"]),
        Route("/jobs/{number:int}", server.answer, methods=["GET"]),
        Route("/jobs/{number:int}", server.stop, methods=["DELETE"]),
        Route("/jobs/{number:int}/events", server.events, methods=["GET"]),
        Route("/{name}", server.asset, methods=["GET"]),
    ]
    handlers: Mapping[Any, Any] = {WhatWhereError: _ours, HTTPException: _http, Exception: _unexpected}
    return Guard(Starlette(routes=routes, exception_handlers=handlers), key)


class _Server:
    """What the routes share."""

    def __init__(self, source: Source, page: Path, questions: Mapping[str, Ask], works: Mapping[str, Work]) -> None:
        self._source, self._page, self._questions, self._works = source, page, questions, works
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
        # The system's own table, which guess_type reads, may say anything of these two.
        kind = {".js": "text/javascript", ".css": "text/css"}.get(path.suffix, kind)
        return FileResponse(path, media_type=kind)

    async def ask(self, request: Request) -> Response:
        question = self._questions.get(request.path_params["name"])
        if question is None:
            raise HTTPException(404, "There is no such question.")
        settings = await _settings(request)
        if self._limit is None:  # belongs to the event loop, which runs only now
            self._limit = anyio.CapacityLimiter(AT_ONCE)
        packed = await to_thread.run_sync(lambda: pack(question(self._source, settings)), limiter=self._limit)
        return Response(packed, media_type=MEDIA_TYPE)

    async def start(self, request: Request) -> Response:
        work = self._works.get(request.path_params["name"])
        if work is None:
            raise HTTPException(404, "There is no such work.")
        settings = await _settings(request)
        job = self._jobs.start(lambda report: work(self._source, settings, report))
        return JSONResponse(job.told(), 202)

    async def answer(self, request: Request) -> Response:
        job = self._jobs.find(request.path_params["number"])
        if job.answer is None:
            raise HTTPException(409, f"This job is {job.state}.")
        return Response(await to_thread.run_sync(pack, job.answer), media_type=MEDIA_TYPE)

    async def stop(self, request: Request) -> Response:
        return JSONResponse(self._jobs.stop(request.path_params["number"]).told())

    async def events(self, request: Request) -> Response:
        job = self._jobs.find(request.path_params["number"])
        return StreamingResponse(_events(job), media_type="text/event-stream")


async def _events(job: Job, every: float = 0.1, patience: float = 10.0) -> AsyncIterator[str]:
    """Describe of a job until its end, as server-sent events; a comment now and then shows whether somebody reads."""
    seen, silent = -1, 0.0
    while True:
        over = job.state != "running"  # asked first: what changes after this is told in the next round
        if job.changes != seen:
            seen, silent = job.changes, 0.0
            yield f"data: {json.dumps(job.told())}\n\n"
        elif silent > patience:
            silent = 0.0
            yield ": still here\n\n"
        if over:
            return
        await anyio.sleep(every)
        silent += every


async def _settings(request: Request) -> dict[str, Any]:
    """Read the settings of a question, a JSON object of a bounded size."""
    body = bytearray()
    try:
        async for part in request.stream():
            body += part
            if len(body) > LARGEST_REQUEST:
                raise HTTPException(413, f"A question has at most {LARGEST_REQUEST:,} bytes.")
    except ClientDisconnect:
        raise HTTPException(400, "The question broke off.") from None
    try:
        found = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        raise HTTPException(400, "The settings of a question are a JSON object; these are no JSON.") from None
    if not isinstance(found, dict):
        raise HTTPException(400, "The settings of a question are a JSON object.")
    return found


async def _ours(request: Request, problem: WhatWhereError) -> Response:
    return JSONResponse({"error": type(problem).__name__, "message": str(problem)}, 400)


async def _http(request: Request, problem: HTTPException) -> Response:
    return JSONResponse({"error": "request", "message": problem.detail}, problem.status_code)


async def _unexpected(request: Request, problem: Exception) -> Response:
    # Starlette raises it again behind this answer, so that the terminal shows where it happened.
    said = "The studio could not answer this; the terminal that runs it says why."
    if isinstance(problem, MemoryError):
        said = "There is too little memory for this. Choose a smaller number."
    return JSONResponse({"error": "internal", "message": said}, 500)


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


def serve(source: Source, port: int | None, browser: bool, tell: Callable[[str, int], None]) -> None:
    """Serve a source until Ctrl-C.

    Args:
        port: None is one of the system's choosing.
        browser: whether to open the page in one.
        tell: is told the address to open, and the port.
    """
    check_page(PAGE)
    key, listening = Key(), bound(port)
    address = _address(listening, key)
    config = uvicorn.Config(
        create_app(source, key),
        log_level="warning",
        access_log=False,
        server_header=False,
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=1,
        h11_max_incomplete_event_size=1 << 14,
        lifespan="off",
        ws="none",
    )
    # What the first view needs is read while the browser starts; what is wrong with it, the view will say.
    threading.Thread(target=_warm, args=(source,), daemon=True).start()
    tell(address, listening.getsockname()[1])
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
    source: Source,
    page: Path = PAGE,
    questions: Mapping[str, Ask] = QUESTIONS,
    works: Mapping[str, Work] = WORKS,
) -> Iterator[str]:
    """Serve a source from a thread of this process, and give the address that lets in.

    Args:
        page: the folder of the page's files.
        questions, works: as `create_app` takes them.
    """
    key, listening = Key(), bound()
    app = create_app(source, key, page, questions, works)
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off", ws="none"))
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    try:
        yield _address(listening, key)
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


def _address(listening: socket.socket, key: Key) -> str:
    return f"http://127.0.0.1:{listening.getsockname()[1]}/?token={key.token}"


def _warm(source: Source) -> None:
    try:
        source.warm()
    except WhatWhereError:
        return
