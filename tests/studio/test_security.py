"""Who is let in, and who is not; and the written list of attacks, each over a socket."""

import re
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from reliability.studio_attacks import ATTACKS, Attack, Door, attempted, enter, exchange
from whatwhere.errors import SettingError
from whatwhere.studio import server
from whatwhere.studio.server import BLOCKED, CONNECTIONS, LARGEST_REQUEST, Key, bound, create_app, served
from whatwhere.studio.session import Session

from .conftest import ADDRESS, small_page

QUESTION = "/query/about"


def test_the_key_of_the_start_address_becomes_a_cookie(client: TestClient, key: Key) -> None:
    assert client.get("/").status_code == client.post(QUESTION).status_code == 403
    answer = client.get("/", params={"token": key.token})
    assert answer.status_code == 200
    said = answer.headers["set-cookie"]
    assert re.search("; HttpOnly(;|$)", said)
    assert re.search("; SameSite=Strict(;|$)", said)
    assert key.token not in said
    assert client.get("/").status_code == client.post(QUESTION).status_code == 200


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/"), ("GET", "/studio.js"), ("POST", QUESTION), ("GET", "/none")]
)
def test_every_answer_keeps_others_out(inside: TestClient, method: str, path: str) -> None:
    headers = inside.request(method, path).headers
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["script-src"] == policy["connect-src"] == policy["style-src"] == "'self'"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert not [name for name in headers if name.startswith("access-control")]


def test_questions_are_bounded_and_objects(inside: TestClient) -> None:
    assert inside.post(QUESTION, content=b" " * (LARGEST_REQUEST + 1)).status_code == 413
    for wrong in (b"[]", b"1", b"{", b"\xff", b"[" * 50_000):
        answer = inside.post(QUESTION, content=wrong)
        assert (answer.status_code, answer.json()["error"]) == (400, "request")
    assert inside.post("/query/os.system", json={}).status_code == 404
    assert inside.post("/jobs/os.system", json={}).status_code == 404


def test_ports_that_browsers_refuse_are_not_taken() -> None:
    with pytest.raises(SettingError, match="browsers refuse"):
        bound(6000)
    with bound() as listening:
        assert listening.proto == socket.IPPROTO_TCP  # else asyncio holds small answers back for 40 ms
        address, port = listening.getsockname()
        assert address == "127.0.0.1"
        assert port not in BLOCKED
        with pytest.raises(SettingError, match=f"port {port} cannot be opened"):
            bound(port)


def test_a_free_port_that_browsers_refuse_is_left_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    refused: list[int] = []

    class FirstTwo(frozenset[int]):
        def __contains__(self, port: object) -> bool:
            return isinstance(port, int) and len(refused) < 2 and refused.append(port) is None

    monkeypatch.setattr(server, "BLOCKED", FirstTwo())
    with bound() as listening:
        assert len({*refused, listening.getsockname()[1]}) == 3
        for port in refused:
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port), 5)


def test_our_errors_come_in_their_words_and_others_without_theirs(fresh: Session, key: Key, page: Path) -> None:
    def refuse(session, settings):
        raise SettingError("seven is too many.")

    def fall(session, settings):
        raise ZeroDivisionError("/home/somebody")

    app = create_app(fresh, key, page, {"refuse": refuse, "fall": fall})
    with TestClient(app, base_url=ADDRESS, raise_server_exceptions=False) as client:
        client.get("/", params={"token": key.token})
        answer = client.post("/query/refuse")
        assert (answer.status_code, answer.json()) == (400, {"error": "SettingError", "message": "seven is too many."})
        answer = client.post("/query/fall")
        assert (answer.status_code, answer.json()["error"]) == (500, "internal")
        assert "somebody" not in answer.text
        assert "content-security-policy" in answer.headers


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """Serve a page beside which something lies that is none of its business, linked into its folder."""
    with served(Session.open(), small_page(tmp_path_factory.mktemp("attacked"))) as url:
        yield enter(url)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: f"{attack.way}: {attack.name}")
def test_an_attack_gets_exactly_what_it_must(attack: Attack, door: Door) -> None:
    assert attempted(attack, door) == ""


def test_the_list_is_long_and_says_each_thing_once() -> None:
    assert len({(attack.way, attack.name) for attack in ATTACKS}) == len(ATTACKS) > 150


def test_settings_that_do_not_come_are_not_waited_for(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "PATIENCE", 0.3)
    head = f"POST /query/about HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {door.cookie}\r\nContent-Length: 2\r\n\r\n"
    with socket.create_connection(("127.0.0.1", door.port), 20) as client:
        client.sendall(f"{head}{{".encode())
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 400")


def test_too_many_connections_are_refused_until_some_are_closed(door: Door) -> None:
    request = f"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {door.cookie}\r\nConnection: close\r\n\r\n".encode()
    with ExitStack() as idle:
        for _ in range(CONNECTIONS):
            idle.enter_context(socket.create_connection(("127.0.0.1", door.port), 20))
        assert exchange(door.port, request).startswith(b"HTTP/1.1 503")
    for _ in range(50):
        if (answer := exchange(door.port, request)).startswith(b"HTTP/1.1 200"):
            break
        time.sleep(0.1)
    assert answer.startswith(b"HTTP/1.1 200")
