"""Who is let in, and who is not."""

import re
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from whatwhere.errors import SettingError
from whatwhere.studio.server import BLOCKED, LARGEST_REQUEST, Key, bound, confined
from whatwhere.studio.session import Session

ADDRESS = "http://127.0.0.1:4321"
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


@pytest.mark.parametrize("token", ["", "x", "é", "a" * 32])
def test_another_key_opens_nothing(client: TestClient, token: str) -> None:
    answer = client.get("/", params={"token": token})
    assert (answer.status_code, "set-cookie" in answer.headers) == (403, False)
    assert "whatwhere studio" in answer.text


def test_the_key_opens_the_page_alone(client: TestClient, key: Key) -> None:
    assert client.post(QUESTION, params={"token": key.token}).status_code == 403


def test_a_cookie_of_another_studio_opens_nothing(client: TestClient, key: Key) -> None:
    other = Key()
    for cookie in (other.cookie.split(";")[0], f"{key.name}=guess", f"{key.name}={key.token}", "=", "a=b; a"):
        assert client.post(QUESTION, headers={"cookie": cookie}).status_code == 403


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:1", "localhost:9999", "LOCALHOST"])
def test_hosts_of_this_machine_are_answered(inside: TestClient, host: str) -> None:
    assert inside.post(QUESTION, headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:4321",
        "127.0.0.1.evil.example",
        "localhost@evil.example",
        "[::1]:4321",
        "[::2]",
        "",
        "::1",
    ],
)
def test_foreign_hosts_are_refused_even_with_the_key(inside: TestClient, key: Key, host: str) -> None:
    assert inside.post(QUESTION, headers={"host": host}).status_code == 400
    assert inside.get("/", params={"token": key.token}, headers={"host": host}).status_code == 400


def test_other_pages_of_this_machine_may_not_ask(inside: TestClient) -> None:
    for origin in (
        "http://127.0.0.1:1",
        "http://localhost:4321",
        "https://127.0.0.1:4321",
        "null",
        "http://evil.example",
        "http://[",
        "",
    ):
        assert inside.post(QUESTION, headers={"origin": origin}).status_code == 403
    assert inside.post(QUESTION, headers={"origin": ADDRESS}).status_code == 200
    for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)):
        assert inside.post(QUESTION, headers={"sec-fetch-site": site}).status_code == status


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


def test_no_other_method_does_anything(inside: TestClient) -> None:
    for method, path in (
        ("GET", QUESTION),
        ("PUT", QUESTION),
        ("POST", "/"),
        ("DELETE", "/studio.js"),
        ("OPTIONS", QUESTION),
    ):
        assert inside.request(method, path).status_code == 405


@pytest.mark.parametrize(
    "path",
    [
        "/secret.txt",
        "/..%2fsecret.txt",
        "/%2e%2e/secret.txt",
        "/link.txt",
        "/index.html%00.txt",
        "/%2fetc%2fpasswd",
        "/.js",
        "/studio.py",
        f"/{'a' * 300}.js",
    ],
)
def test_nothing_but_the_page_is_served(inside: TestClient, path: str) -> None:
    answer = inside.get(path)
    assert (answer.status_code, "secret" in answer.text) == (404, False)


def test_paths_stay_in_their_folder(page: Path) -> None:
    assert confined(page, "studio.js") == page.resolve() / "studio.js"
    for name in ("../secret.txt", "link.txt", "/etc/passwd", "", ".", "a\0b", "missing", "a" * 300):
        with pytest.raises(SettingError, match="no file"):
            confined(page, name)


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
        address, port = listening.getsockname()
        assert address == "127.0.0.1"
        assert port not in BLOCKED
        with pytest.raises(SettingError, match=f"port {port} cannot be opened"):
            bound(port)


def test_our_errors_come_in_their_words_and_others_without_theirs(fresh: Session, key: Key, page: Path) -> None:
    from whatwhere.studio.server import create_app

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
