"""Who may query the studio: this machine's user, through the address that the program printed, and nobody else.

A page of any other site can make the user's browser send requests to 127.0.0.1. The studio prevents that:

- the Host must be a name of this machine (TrustedHostMiddleware in server.py): a foreign name that was made to resolve
  to 127.0.0.1 is refused;
- a cookie is needed, which only the start address gives, and which the browser sends from our own page alone;
- an Origin, where the browser names one, must be ours: other ports of this machine are the same site to a cookie;
- the page may load and call nothing but what came from here, and no other page may frame it.
"""

import hashlib
import secrets
from contextlib import suppress
from pathlib import Path
from typing import final

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from whatwhere.errors import SettingError

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
