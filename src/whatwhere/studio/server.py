"""The studio's server: transport, and who may query it. The answers are in api/.

A page of any other site can make the user's browser send requests to 127.0.0.1. Only this machine's user gets answers,
through the address that the program printed:

- the Host must be a name of this machine (TrustedHostMiddleware): a foreign name that was made to resolve to 127.0.0.1
  is refused;
- a cookie is needed, which only the start address gives, and which the browser sends from our own page alone;
- an Origin, where the browser names one, must be ours: other ports of this machine are the same site to a cookie;
- the page may load and call nothing but what came from here, and no other page may frame it.
"""

import hashlib
import json
import secrets
import socket
import threading
import webbrowser
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, final

import anyio
import uvicorn
from anyio import to_thread
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from whatwhere.errors import SettingError, WhatWhereError
from whatwhere.studio.api import JOBS, QUERIES, JobFunction, Query
from whatwhere.studio.export import PAGE as PAGE
from whatwhere.studio.export import check_page
from whatwhere.studio.jobs import Job, Jobs
from whatwhere.studio.session import Session
from whatwhere.studio.wire import MEDIA_TYPE, pack

LARGEST_REQUEST = 1 << 17
PATIENCE = 20.0
"""Seconds in which the settings of a query must be there."""
AT_ONCE, CONNECTIONS = 4, 64
"""Queries that are answered at a time, and connections; more are refused until later."""
HOSTS = ("127.0.0.1", "localhost")
"""The port is not checked: a tunnel may lead another port of this machine here."""
LARGEST_HEAD = 1 << 14
"""Bytes of all headers of a request."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}
BLOCKED = frozenset(
    (1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, *range(6665, 6670), 6679, 6697, 10080)
)
"""Ports above 1023 that browsers refuse to open, https://fetch.spec.whatwg.org/#port-blocking."""
_KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".txt": "text/plain"}


@final
class Key:
    """The token of the start address, and the cookie that it is exchanged for."""

    def __init__(self) -> None:
        self.token = secrets.token_urlsafe(24)
        self._cookie = secrets.token_urlsafe(24)
        # Cookies do not know ports: two studios on one machine need two names.
        self.name = "whatwhere-" + hashlib.sha256(self._cookie.encode()).hexdigest()[:12]

    @property
    def cookie(self) -> str:
        """The header that gives the cookie."""
        return f"{self.name}={self._cookie}; Path=/; HttpOnly; SameSite=Strict"

    def opens(self, token: str) -> bool:
        """Return whether a token is this one, in constant time."""
        return secrets.compare_digest(token.encode(), self.token.encode())

    def known(self, header: str) -> bool:
        """Return whether a Cookie header holds the cookie, among any that other programs of this machine have set."""
        pairs = (part.strip().partition("=") for part in header.split(";"))
        values = [value for name, _, value in pairs if name == self.name]
        return any([secrets.compare_digest(value.encode(), self._cookie.encode()) for value in values])  # noqa: C419


@final
class Guard:
    """ASGI middleware that lets only authorized requests reach the application."""

    def __init__(self, app: ASGIApp, key: Key) -> None:
        self._app, self._key = app, key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that may not come in; pass on one that may."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            elif scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            return
        opened = scope["path"] == "/" and self._key.opens(QueryParams(scope["query_string"]).get("token", ""))

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                if opened and message["status"] == 200:
                    headers.append("set-cookie", self._key.cookie)
            await send(message)

        refused = self._refused(Headers(scope=scope), scope["http_version"], opened)
        if refused is not None:  # what it has sent behind the head is not read
            refused.headers["connection"] = "close"
        await (refused or self._app)(scope, receive, sending)

    def _refused(self, headers: Headers, version: str, opened: bool) -> PlainTextResponse | None:
        if sum(len(name) + len(value) for name, value in headers.raw) > LARGEST_HEAD:
            return PlainTextResponse(f"Headers have at most {LARGEST_HEAD:,} bytes.\n", 431)
        if version not in ("1.0", "1.1") or ("content-length" in headers and "transfer-encoding" in headers):
            return PlainTextResponse("The studio speaks HTTP/1.1, and a request has one length.\n", 400)
        own = headers.get("origin") in (None, f"http://{headers.get('host')}")
        asked = opened or headers.get("sec-fetch-site") in (None, "same-origin", "none")
        if not own or not asked:
            return PlainTextResponse("The studio answers to its own page alone.\n", 403)
        if not opened and not self._key.known(headers.get("cookie", "")):
            message = "Open the studio by the address that `whatwhere studio` printed: it holds a key.\n"
            return PlainTextResponse(message, 403)
        return None


def confined(root: Path, name: str) -> Path:
    """Return the file of a name below a folder, links followed, or raise SettingError where it would be elsewhere."""
    if "\0" not in name:
        base = root.resolve()
        with suppress(OSError):  # a name that is longer than names of files may be
            path = (base / name).resolve()
            if path.is_relative_to(base) and path.is_file():
                return path
    raise SettingError(f"there is no file {name[:80]!r} here.")


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
    """Open a socket of 127.0.0.1, at a port of the system's choosing that browsers do not refuse."""
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
    """Serve a session until Ctrl-C, at a port of the system's choosing where it is None."""
    check_page(PAGE)
    key = Key()
    with _opened(create_app(session, key), key, port, "warning") as (server, listening, address):
        # What the first view needs is read while the browser starts; the view itself reports what is wrong with it.
        threading.Thread(target=_warm, args=(session,), daemon=True).start()
        on_start(address, listening.getsockname()[1])
        if browser:
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        with suppress(KeyboardInterrupt):  # raised again by uvicorn once all is closed
            server.run(sockets=[listening])


@contextmanager
def served(
    session: Session,
    page: Path = PAGE,
    queries: Mapping[str, Query] = QUERIES,
    jobs: Mapping[str, JobFunction] = JOBS,
) -> Iterator[str]:
    """Serve a session from a thread of this process, and yield the address, with its key."""
    key = Key()
    with _opened(create_app(session, key, page, queries, jobs), key, None, "error") as (server, listening, address):
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        try:
            yield address
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def _opened(
    app: ASGIApp, key: Key, port: int | None, log_level: str
) -> Iterator[tuple[uvicorn.Server, socket.socket, str]]:
    """Yield a server that does not run yet, its socket, and its address with the key."""
    config = uvicorn.Config(
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
    with bound(port) as listening:
        yield uvicorn.Server(config), listening, f"http://127.0.0.1:{listening.getsockname()[1]}/?token={key.token}"


def _warm(session: Session) -> None:
    with suppress(WhatWhereError):
        session.warm()
