"""Attacks on the studio over a socket, byte by byte: each with the one status that must come back."""

import socket
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

PATIENCE = 5.0
"""Seconds to wait for an answer; the studio waits longer for a client."""
_BYTES = 1 << 22
_QUERY = "/query/about"


@dataclass(frozen=True)
class Door:
    """The way into one studio, as its holder has it.

    Args:
        port: of 127.0.0.1.
        token: of the start address.
        cookie: "name=value", as a browser sends it.
    """

    port: int
    token: str
    cookie: str


@dataclass(frozen=True)
class Attack:
    """A request that should not get what it wants, or that shows that the studio still answers its owner.

    Args:
        way: the group that it belongs to.
        name: what is done.
        request: the bytes, in which PORT, TOKEN, COOKIE, NAME and VALUE are those of the studio.
        statuses: of the answers on this connection, in order; 0 is a connection that is closed without one.
    """

    way: str
    name: str
    request: bytes
    statuses: tuple[int, ...]


def enter(address: str) -> Door:
    """Return the way into a studio, by its start address.

    Args:
        address: that the program printed.
    """
    parts = urlsplit(address)
    port, token = int(parts.port or 0), parts.query.removeprefix("token=")
    head = f"GET /?token={token} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n"
    answer = exchange(port, head.encode()).decode("latin-1")
    cookie = next(line for line in answer.split("\r\n") if line.lower().startswith("set-cookie:"))
    return Door(port, token, cookie.partition(":")[2].partition(";")[0].strip())


def exchange(port: int, request: bytes, patience: float = PATIENCE) -> bytes:
    """Send bytes to a port of 127.0.0.1, and return all that comes back until the connection is closed.

    Args:
        port: of the studio.
        request: the bytes.
        patience: seconds without an answer after which there is none.
    """
    came = b""
    with socket.create_connection(("127.0.0.1", port), timeout=patience) as client:
        try:
            client.sendall(request)
            while len(came) < _BYTES and (part := client.recv(1 << 16)):
                came += part
        except (ConnectionError, TimeoutError):
            pass
    return came


def statuses(answer: bytes) -> tuple[int, ...]:
    """Return the status of each answer on one connection, or 0 where there is none."""
    found = []
    rest = answer
    while rest.startswith(b"HTTP/1.1 "):
        head, _, rest = rest.partition(b"\r\n\r\n")
        found.append(int(head[9:12]))
        named = [line.partition(b":") for line in head.lower().split(b"\r\n")]
        length = next((int(value) for name, _, value in named if name == b"content-length"), len(rest))
        rest = rest[length:]
    return tuple(found) or (0,)


def attempted(attack: Attack, door: Door, patience: float = PATIENCE) -> str:
    """Make an attack, and return how it went otherwise than it must: nothing if it did not.

    Args:
        attack: of the list.
        door: the studio's.
        patience: seconds to wait for an answer.
    """
    name, _, value = door.cookie.partition("=")
    request = attack.request
    for word, meant in (("PORT", str(door.port)), ("TOKEN", door.token), ("COOKIE", door.cookie)):
        request = request.replace(word.encode(), meant.encode())
    request = request.replace(b"NAME", name.encode()).replace(b"VALUE", value.encode())
    answer = exchange(door.port, request, patience)
    if (came := statuses(answer)) != attack.statuses:
        return f"{attack.way}, {attack.name}: {came} instead of {attack.statuses}"
    head = answer.partition(b"\r\n\r\n")[0].lower()
    if b"access-control-" in head or b"\r\nx-injected" in head or (b"set-cookie" in head and came != (200,)):
        return f"{attack.way}, {attack.name}: a header that must not be there"
    return ""


def _request(
    line: str = f"POST {_QUERY}",
    *headers: str,
    host: str | None = "127.0.0.1:PORT",
    cookie: str | None = "COOKIE",
    body: bytes = b"{}",
    length: bool = True,
) -> bytes:
    """Return a request that would be answered, changed in something."""
    lines = [f"{line} HTTP/1.1"]
    lines += [] if host is None else [f"Host: {host}"]
    lines += [] if cookie is None else [f"Cookie: {cookie}"]
    lines += [f"Content-Length: {len(body)}"] if length and not line.startswith("GET") else []
    lines += [*headers, "Connection: close"]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (b"" if line.startswith("GET") else body)


def _query(*headers: str, **changed: Any) -> bytes:
    return _request(f"POST {_QUERY}", *headers, **changed)


def _shown(text: str) -> str:
    return text.encode("unicode_escape").decode()


_NAMES = (
    "evil.example", "evil.example:PORT", "127.0.0.1.evil.example", "localhost.evil.example:PORT", "127.0.0.1.nip.io",
    "localhost@evil.example", "localhost.", "127.0.0.1.", "127.1", "0x7f000001", "2130706433", "0.0.0.0", "127.0.0.2",
    "[::1]:PORT", "[::2]", "[::ffff:127.0.0.1]", "[0:0:0:0:0:0:0:1]", "[::1", "::1", "[::1]x", "127.0.0.1:",
    "127.0.0.1:x", "127.0.0.1:\u00b2", "127.0.0.1:80:80", "127.0.0.1, evil.example", "localhost/..", "",
)  # fmt: skip
_ORIGINS = (
    "null", "", "http://evil.example", "http://127.0.0.1:1", "http://localhost:PORT", "https://127.0.0.1:PORT",
    "http://127.0.0.1:PORT.evil.example", "http://127.0.0.1:PORT@evil.example", "http://127.0.0.1:PORT/",
    "http://127.0.0.1", "HTTP://127.0.0.1:PORT", "http://127.0.0.1:PORT http://evil.example", "file://",
    "chrome-extension://a", "127.0.0.1:PORT",
)  # fmt: skip
_PATHS = (
    "/../secret.txt", "/..%2fsecret.txt", "/%2e%2e/secret.txt", "/%252e%252e%252fsecret.txt", "/..%5csecret.txt",
    "/..\\secret.txt", "/....//secret.txt", "/%2fetc%2fpasswd", "//etc/passwd", "/file:%2f%2f%2fetc%2fpasswd.txt",
    "/index.html%00.txt", "/studio.js%00", "/studio.js/", "/studio.js%20", "/STUDIO.JS", "/link.txt", "/.js",
    "/%c0%ae%c0%ae%c0%afsecret.txt", "/%ff.js", "/studio.py", "/index.html::$DATA", "/con.txt", "/a/../studio.js",
    f"/{'a' * 300}.js", "/jobs/1e9/events",
)  # fmt: skip
_COOKIES = (
    "", "=", ";", "NAME=", "NAME=guess", "NAME=VALUEx", "NAME=VALU", "NAME=TOKEN", "__Host-NAME=VALUE",
    "__Secure-NAME=VALUE", "NAMEx=VALUE", "name=VALUE", "a=NAME=VALUE", 'a="; NAME=VALUE"', "NAME=VALUE2; NAME=x",
    "NAME=%56ALUE", "$Version=1; NAME=x", "NAME=\u00e9",
)  # fmt: skip
_SIMPLE = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=a", "text/plain;json")
_CHUNKED = "Transfer-Encoding: chunked"
_HIDDEN = b"GET / HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nCookie: COOKIE\r\n\r\n"
_METHODS = (
    f"GET {_QUERY}", f"HEAD {_QUERY}", f"PUT {_QUERY}", f"DELETE {_QUERY}", f"PATCH {_QUERY}", f"OPTIONS {_QUERY}",
    "TRACE /", "CONNECT /", "POST /", "DELETE /studio.js", "PROPFIND /", "GET /jobs/maps.draw",
)  # fmt: skip
_SOCKET_KEY = "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="
_REQUESTS: dict[tuple[str, int], dict[str, bytes]] = {
    ("owner", 200): {
        "a query": _query(),
        "with Origin": _query("Origin: http://127.0.0.1:PORT"),
        "by localhost": _query(host="localhost:PORT"),
        "as JSON": _query("Content-Type: application/json; charset=utf-8"),
        "in chunks": _query(_CHUNKED, body=b"2\r\n{}\r\n0\r\n\r\n", length=False),
        "the page": _request("GET /"),
        "with a folded header, which hides nothing": _query("X-A: b\r\n\tTransfer-Encoding: chunked"),
        "after other cookies": _query(cookie="a=b; COOKIE; c"),
    },
    ("Host and DNS rebinding", 400): {
        **{f"Host: {_shown(name)}": _query(host=name) for name in _NAMES},
        **{f"the start address of {name}": _request("GET /?token=TOKEN", host=name) for name in _NAMES[:5]},
        "no Host": _query(host=None),
        "two Hosts": _query("Host: evil.example"),
        "two equal Hosts": _query("Host: 127.0.0.1:PORT"),
        "X-Forwarded-Host counts for nothing": _request("GET /", "X-Forwarded-Host: localhost", host="evil.example"),
    },
    ("request target", 404): {
        "absolute, of another host": _request("GET http://evil.example/"),
        "absolute, of this one": _request("GET http://127.0.0.1:PORT/"),
        "without a slash": _request("GET studio.js"),
        "a query in capitals": _request("POST /QUERY/about"),
        "a query that is a module": _request("POST /query/os.system"),
        "a job that is a module": _request("POST /jobs/os.system"),
    },
    ("path traversal", 404): {path[:40]: _request(f"GET {path}") for path in _PATHS},
    ("Origin", 403): {f"Origin: {name}": _query(f"Origin: {name}") for name in _ORIGINS},
    ("Sec-Fetch-Site", 403): {
        **{site: _query(f"Sec-Fetch-Site: {site}") for site in ("cross-site", "same-site", "x", "")},
        "a script of another site": _request("GET /studio.js", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Dest: script"),
    },
    ("cookies and keys", 403): {
        "no cookie": _query(cookie=None),
        **{f"Cookie: {_shown(value)}": _query(cookie=value) for value in _COOKIES},
        "the token for a query": _request(f"POST {_QUERY}?token=TOKEN", cookie=None),
        "a wrong token": _request("GET /?token=x", cookie=None),
        "the token in another case": _request("GET /?Token=TOKEN", cookie=None),
        "the token as a prefix": _request("GET /?token=TOKENx", cookie=None),
        "the token for a script": _request("GET /studio.js?token=TOKEN", cookie=None),
        "the token as a header": _request("GET /", "Authorization: Bearer TOKEN", cookie=None),
        "a cookie set beforehand": _request("GET /?token=", cookie="NAME=fixed"),
    },
    ("forged requests", 415): {f"a form: {kind}": _query(f"Content-Type: {kind}") for kind in _SIMPLE},
    ("methods", 405): {
        **{line: _request(line) for line in _METHODS},
        "override by header": _request(f"GET {_QUERY}", "X-HTTP-Method-Override: POST"),
        "override by address": _request(f"GET {_QUERY}?_method=POST"),
        "override of GET by a header": _request("POST /", "X-HTTP-Method: DELETE"),
    },
    ("header injection", 403): {
        "CRLF in a token": _request("GET /?token=a%0d%0aX-Injected:%20yes", cookie=None),
        "CRLF in an Origin": _request("GET /", "Origin: http://a%0d%0aX-Injected: yes"),
    },
    ("header injection", 404): {
        "CRLF in a path": _request("GET /a%0d%0aX-Injected:%20yes"),
        "CRLF in a name of a query": _request("POST /query/a%0d%0aX-Injected:%20yes"),
    },
    ("smuggling and floods", 400): {
        "both lengths, chunked wins": _query(_CHUNKED, body=b"0\r\n\r\n" + _HIDDEN),
        "two lengths that differ": _query("Content-Length: 5"),
        "a length with a sign": _query("Content-Length: +2", length=False),
        "a negative length": _query("Content-Length: -2", length=False),
        "a length in hexadecimal": _query("Content-Length: 0x2", length=False),
        "a length of 400 digits": _query("Content-Length: " + "9" * 400, length=False),
        "a blank before the colon": _query("Transfer-Encoding : chunked"),
        "an HTTP version that is none": _query().replace(b"HTTP/1.1", b"HTTP/9.9", 1),
        "a line feed in a header's name": _query("X-\nA: b"),
        "NUL in a header": _query("X-A: \0b"),
        "a header without a colon": _query("nonsense"),
        "one header of 1 MB": _query("X-A: " + "a" * (1 << 20)),
        "an address of 1 MB": _request("GET /" + "a" * (1 << 20)),
        "no HTTP at all": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        "a coding that is not known": _query("Transfer-Encoding: gzip"),
        "a chunk of no size": _query(_CHUNKED, body=b"x\r\n{}\r\n", length=False),
        "a chunk of 20 hexadecimal digits": _query(_CHUNKED, body=b"f" * 21 + b"\r\n{}", length=False),
    },
    ("smuggling and floods", 431): {"40 kB of headers": _query(*(f"X-{n}: {'a' * 100}" for n in range(400)))},
    ("smuggling and floods", 404): {"a request behind the last one": _request("GET /none") + _HIDDEN},
    ("smuggling and floods", 403): {
        "a request behind a refused one": _query(cookie=None, body=_HIDDEN).replace(b"Connection: close\r\n", b"")
        + _HIDDEN,
        "garbage behind a refusal": _query(cookie=None, body=b"{}\r\n\x00\x01"),
    },
    ("bodies", 413): {
        "more than the largest": _query(body=b" " * ((1 << 17) + 1)),
        "a chunked one without end": _query(
            _CHUNKED, body=(b"10000\r\n" + b" " * (1 << 16) + b"\r\n") * 3, length=False
        ),
    },
    ("websockets", 200): {
        "an upgrade": _request("GET /", "Upgrade: websocket", "Sec-WebSocket-Version: 13", _SOCKET_KEY),
        "h2c": _query("Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"),
    },
    ("websockets", 403): {
        "an upgrade by another page": _request(
            "GET /", "Upgrade: websocket", "Origin: http://evil.example", _SOCKET_KEY
        )
    },
}

ATTACKS = tuple(
    Attack(way, name, request, (status,))
    for (way, status), requests in _REQUESTS.items()
    for name, request in requests.items()
)
"""The written list; tests/studio/test_security.py has a test for each."""
