"""The written list of attacks, each over a socket: what comes back is exactly what must."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from reliability.studio_attacks import ATTACKS, Attack, Door, attempted, enter, exchange
from whatwhere.studio import server
from whatwhere.studio.server import served
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


def test_clients_that_keep_it_waiting_are_closed_and_shut_nobody_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(server, "PATIENCE", 0.5)
    (tmp_path / "index.html").write_text("<!doctype html>", encoding="utf-8")
    queries = {"wide": lambda session, settings: "a" * (1 << 25), "short": lambda session, settings: 1}
    with served(Session.open(), tmp_path, queries) as url, ExitStack() as open_:
        door = enter(url)

        def connected(request: str) -> socket.socket:
            client = open_.enter_context(socket.create_connection(("127.0.0.1", door.port), 20))
            client.sendall(request.encode())
            return client

        silent = [connected("") for _ in range(2 * server.CONNECTIONS)]
        head = f"POST /query/short HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {door.cookie}\r\nContent-Length: 2\r\n"
        assert exchange(door.port, f"{head}Connection: close\r\n\r\n{{}}".encode()).startswith(b"HTTP/1.1 200")
        lazy = connected(f"{head}\r\n{{}}".replace("short", "wide"))
        for client in (*silent, connected("POST"), connected(head), connected(f"{head}\r\n{{")):
            assert _read(client) == 0
        time.sleep(1.5)  # in which it takes nothing of its 32 MB
        assert 0 < _read(lazy) < 1 << 25


def _read(client: socket.socket) -> int:
    """Return how many bytes come before the connection is closed."""
    count = 0
    try:
        while part := client.recv(1 << 20):
            count += len(part)
    except ConnectionResetError:
        pass
    return count
