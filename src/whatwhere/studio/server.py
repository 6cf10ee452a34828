"""The studio's server: transport, and who may query it, for any page can make a browser send requests to 127.0.0.1.

The Host must be a name of this machine, else a foreign name could be made to resolve here; a cookie is needed, which
the printed address alone gives; an Origin must be ours, for other ports are the same site to a cookie; and the page
may load and call nothing but what came from here, and no other page may frame it.
"""

import hashlib
import json
import mimetypes
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
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from whatwhere.errors import SettingError, WhatWhereError
from whatwhere.studio.api import JOBS, QUERIES
from whatwhere.studio.api.settings import JobFunction, Query
from whatwhere.studio.export import MEDIA_TYPE, check_page, pack
from whatwhere.studio.export import PAGE as PAGE
from whatwhere.studio.jobs import Job
from whatwhere.studio.session import Session

LARGEST_REQUEST = 1 << 17
PATIENCE = 20.0  # seconds in which the settings of a query must be there
AT_ONCE, JOBS_AT_ONCE, CONNECTIONS = 4, 4, 64
"""Queries that are answered at a time, jobs, and connections; more of these are refused until later."""
HOSTS = ("127.0.0.1", "localhost")  # the port is not checked: a tunnel may lead another port of this machine here
LARGEST_HEAD = 1 << 14  # bytes of all headers of a request
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


def create_app(
    session: Session,
    key: Key,
    page: Path = PAGE,
    queries: Mapping[str, Query] = QUERIES,
    jobs: Mapping[str, JobFunction] = JOBS,
) -> ASGIApp:
    """Return the application that serves one session to the holder of one key."""
    static = StaticFiles(directory=page, html=True)
    mimetypes.add_type("text/javascript", ".js")  # on Windows, another program may have named another type
    at_work: list[Job] = []

    @cache
    def limit() -> anyio.CapacityLimiter:  # belongs to the event loop, which runs only when a query comes
        return anyio.CapacityLimiter(AT_ONCE)

    async def query(request: Request) -> Response:
        function = _named(queries, request)
        settings = await _settings(request)
        packed = await to_thread.run_sync(lambda: pack(function(session, settings)), limiter=limit())
        return Response(packed, media_type=MEDIA_TYPE)

    async def job(request: Request) -> Response:
        function = _named(jobs, request)
        settings = await _settings(request)
        at_work[:] = [each for each in at_work if each.state == "running"]
        if len(at_work) >= JOBS_AT_ONCE:
            raise SettingError(
                f"{JOBS_AT_ONCE} jobs are at work, and no more are taken at a time.\nWait for one, or stop it."
            )
        started = Job(lambda report: function(session, settings, report))
        at_work.append(started)
        return StreamingResponse(_followed(started), media_type=MEDIA_TYPE)

    routes = [
        Route("/", static),
        Route("/query/{name}", query, methods=["POST"]),
        Route("/jobs/{name}", job, methods=["POST"]),
        Route("/{name}", static),
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


async def _followed(job: Job, every: float = 0.1) -> AsyncIterator[bytes]:
    """Yield the progress of a job as lines of JSON, of which the last says how it ended, then its answer.

    A reader who leaves stops the job.
    """
    before = None
    try:
        while before is None or before["state"] == "running":
            if (now := job.progress()) != before:
                yield json.dumps(now).encode() + b"\n"
            else:
                await anyio.sleep(every)
            before = now
        if before["state"] == "done":
            yield await to_thread.run_sync(pack, job.answer)
    finally:
        job.stopping = True


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
    """Open a socket of 127.0.0.1; None is a port of the system's choosing."""
    if port in BLOCKED:
        raise SettingError(f"browsers refuse to open port {port}.\nChoose another, or leave --port out.")
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
        raise SettingError(f"port {port} cannot be opened: {reason}.\nChoose another, or leave --port out.") from None
    if listening.getsockname()[1] in BLOCKED:
        with listening:  # held, so that the system chooses another
            return bound()
    return listening


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
