"""The written list of attacks, each over a socket: what comes back is exactly what must."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from reliability.studio_attacks import ATTACKS, Attack, Door, attempted, enter, exchange
from whatwhere.studio import server
from whatwhere.studio.server import CONNECTIONS, served
from whatwhere.studio.session import Session


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """Serve a page beside which something lies that is none of its business, linked into its folder."""
    folder = tmp_path_factory.mktemp("attacked")
    page = folder / "page"
    page.mkdir()
    (page / "index.html").write_text("<!doctype html><title>page</title>", encoding="utf-8")
    (page / "studio.js").write_text("0", encoding="utf-8")
    (folder / "secret.txt").write_text("secret", encoding="utf-8")
    (page / "link.txt").symlink_to(folder / "secret.txt")
    with served(Session.open(), Path(page)) as url:
        yield enter(url)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: f"{attack.way}: {attack.name}")
def test_an_attack_gets_exactly_what_it_must(attack: Attack, door: Door) -> None:
    assert attempted(attack, door) == ""


def test_the_list_is_long_and_says_each_thing_once() -> None:
    assert len({(attack.way, attack.name) for attack in ATTACKS}) == len(ATTACKS) > 150


def test_nothing_of_another_folder_comes_back(door: Door) -> None:
    head = f"Host: 127.0.0.1:{door.port}\r\nCookie: {door.cookie}\r\nConnection: close\r\n\r\n"
    assert b"404" in exchange(door.port, f"GET /link.txt HTTP/1.1\r\n{head}".encode())[:16]


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
