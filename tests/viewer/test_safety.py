"""Nobody but the one who may look sees anything, and nothing that a model wrote does anything."""

from __future__ import annotations

import http.client
import json
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tests.viewer.captures import append, chat_call, conversation, write_rollout, write_run
from tests.viewer.payloads import PAYLOADS, hostile_record
from tests.viewer.server import RunningViewer, View

TOKEN = "a-token-of-the-tests-0123456789"


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8687", "127.0.0.1.evil.example", "localhost.evil.example", "10.0.0.1", "", "[::2]:80", "0x7f000001"],
)  # fmt: skip
def test_other_hosts_are_not_answered(small: RunningViewer, host: str) -> None:
    """A name that was pointed at this machine gets nothing of the files."""
    for path in ("/", "/run.json", "/api/services", "/rollout/0-0/call/0/raw/line"):
        answer = small.client.get(path, headers={"host": host})
        assert answer.status_code == 421
        assert "0-0" not in answer.text


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:1", "127.0.0.1:99", "[::1]:8687", "127.9.9.9"]
)
def test_loopback_names_are_answered(small: RunningViewer, host: str) -> None:
    """All names of this machine itself are good, whatever the port (it may be forwarded)."""
    assert small.client.get("/run.json", headers={"host": host}).status_code == 200


def test_a_named_host_is_answered(run_dir: Path, view: View) -> None:
    """A name that was allowed is good, in any case."""
    viewer = view(run_dir, hosts=frozenset({"gpu-box"}))
    assert viewer.client.get("/", headers={"host": "GPU-box:8687"}).status_code == 200
    assert viewer.client.get("/", headers={"host": "gpu-box2"}).status_code == 421


def test_a_token_is_asked_for_everywhere(run_dir: Path, view: View) -> None:
    """With a token, no path answers without it; the address with it sets a cookie and drops it from the address."""
    viewer = view(run_dir, token=TOKEN)
    client = viewer.client
    paths = (
        "/",
        "/run.json",
        "/static/viewer.js",
        "/api/traces?service=x",
        "/nothing",
        "/live.json",
    )
    for path in paths:
        assert client.get(path).status_code == 401
        assert client.get(path, headers={"authorization": f"Bearer {TOKEN}x"}).status_code == 401
        assert client.get(path, headers={"cookie": "otel_gym_view=wrong"}).status_code == 401
    assert client.get("/?token=wrong").status_code == 401
    assert client.get("/run.json", headers={"authorization": f"bearer {TOKEN}"}).status_code == 200
    entered = client.get(f"/rollout/0-0/?page=1&token={TOKEN}")
    assert entered.status_code == 303
    assert entered.headers["location"] == "/rollout/0-0/?page=1"
    cookie = entered.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie
    assert client.get("/rollout/0-0/").status_code == 200  # the client keeps the cookie


def test_entering_with_the_token_never_leads_elsewhere(run_dir: Path, view: View) -> None:
    """A path of several slashes is no address of another host."""
    viewer = view(run_dir, token=TOKEN)
    for path in ("//evil.example/", "/%5C%5Cevil.example/", "///evil.example"):
        answer = viewer.client.get(f"{viewer.url}{path}?token={TOKEN}")
        assert re.match(r"/[^/\\]", answer.headers["location"])


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
def test_nothing_can_be_written(run_dir: Path, view: View, method: str) -> None:
    """No route takes anything but GET and HEAD, and the files stay as they were."""
    before = {path.name: path.read_bytes() for path in run_dir.glob("*.*") if path.is_file()}
    viewer = view(run_dir)
    for path in (
        "/",
        "/rollout/0-0/",
        "/api/traces",
        "/api/transform",
        "/api/archive/1",
        "/run.json",
    ):
        assert viewer.client.request(method, path, content=b"x").status_code == 405
    assert {
        path.name: path.read_bytes() for path in run_dir.glob("*.*") if path.is_file()
    } == before


@pytest.mark.parametrize(
    "name",
    ["..", "%2e%2e", "..%2f..%2fetc%2fpasswd", "%2fetc%2fpasswd", "..%5c..", "run.json%00", "0-0%00", "%c0%ae%c0%ae", ".otel-gym", "secret", "0-0.capture", "a" * 300],
)  # fmt: skip
def test_ids_cannot_leave_the_directory(tmp_path: Path, view: View, name: str) -> None:
    """Whatever stands where an id should, only rollouts of the directory are answered."""
    outside = tmp_path / "outside"
    outside.mkdir()
    append(outside, "secret", [chat_call("secret", 0, [], {"content": "TOP-SECRET"})])
    directory = write_run(outside / "run")
    append(directory, "0-0", conversation("0-0", 1))
    viewer = view(directory)
    for path in (
        f"/rollout/{name}/",
        f"/rollout/{name}.json",
        f"/rollout/{name}",
        f"/rollout/{name}/call/0/",
        f"/rollout/{name}/call/0/raw/line",
        f"/rollout/{name}/call/0/raw/{name}",
        f"/rollout/0-0/call/{name}",
        f"/rollout/0-0/call/0/raw/{name}",
        f"/static/{name}",
        f"/live.json?rollout={name}",
        f"/compare?a={name}&b=0-0",
        f"/trace/{name}",
        f"/api/traces/{name}",
        f"/api/v3/traces/{name}",
    ):
        # Not with httpx, which would resolve the dots itself.
        connection = http.client.HTTPConnection("127.0.0.1", viewer.port, timeout=20)
        connection.request("GET", path)
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace")
        connection.close()
        assert answer.status in (400, 404, 307, 308), (path, answer.status)
        assert "TOP-SECRET" not in text
        assert "root:" not in text


def test_every_answer_carries_the_protecting_headers(run_dir: Path, view: View) -> None:
    """Pages, data, bodies, errors and refusals alike say what a browser may do with them."""
    viewer = view(run_dir)
    for path in ("/", "/run.json", "/rollout/0-0/", "/nothing", "/static/viewer.css", "/api/services", "/rollout/0-0/call/0/raw/stream"):  # fmt: skip
        headers = viewer.client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-resource-policy"] == "same-origin"
    page = viewer.client.get("/").headers["content-security-policy"]
    for rule in (
        "script-src 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "connect-src 'self'",
    ):
        assert rule in page


def test_pages_have_nothing_inline(run_dir: Path, view: View) -> None:
    """No page needs what the policy forbids: no inline script, style or handler."""
    viewer = view(run_dir)
    for path in ("/", "/rollout/0-0/", "/rollout/1-0-a1/", "/rollout/0-0/call/3/", "/compare?a=0-0&b=0-1", "/nothing"):  # fmt: skip
        page = viewer.client.get(path).text
        assert not re.search(r"<script(?![^>]*\bsrc=\"/static/)", page)
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", page)
        assert not re.search(r"(?:src|href|action)=\"(?!/|#|\?|raw/|part/|curl\.txt)", page)


@pytest.mark.parametrize("name", sorted(PAYLOADS))
def test_hostile_text_is_only_ever_text(tmp_path: Path, view: View, name: str) -> None:
    """In every field that a model, a tool or a client can fill, markup stays text and unseen characters are made visible."""
    payload = PAYLOADS[name]
    directory = write_run(tmp_path / "run")
    append(directory, "0-0", [hostile_record("0-0", number, payload) for number in range(2)])
    write_rollout(
        directory, "0-0", agent=payload, error=payload, reward=1.0, extra={payload: payload}
    )
    viewer = view(directory)
    for path in ("/", "/rollout/0-0/", "/rollout/0-0/call/0/", "/rollout/0-0/call/1/", "/compare?a=0-0&b=0-0", f"/?q={'x'}"):  # fmt: skip
        page = viewer.page(path)
        _assert_inert(page)
    for path in ("/", "/run.json"):
        answer = viewer.client.get(path, params={"q": payload, "task": payload, "model": payload})
        _assert_inert(answer.text) if path == "/" else json.loads(answer.content)
    for kind in ("request", "response", "stream", "line"):
        answer = viewer.client.get(f"/rollout/0-0/call/0/raw/{kind}")
        assert answer.headers["content-type"].split(";")[0] in ("application/json", "text/plain")


class _Markup(HTMLParser):
    """Collects what a browser would see as elements, attributes and text."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.text: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text.append(data)


_OWN_ELEMENTS = frozenset(
    """html head meta title script link body a header svg rect path nav div span i button main section h1 h2 h3 p
    code dl dt dd small abbr figure figcaption b g line text form input label select option output table thead tbody
    tr th td ol li details summary pre article aside dialog kbd progress""".split()  # noqa: SIM905 - shorter to read
)
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff\U000e0000-\U000e0fff]"
)


def _assert_inert(page: str) -> None:
    found = _Markup(page)
    assert set(found.elements) <= _OWN_ELEMENTS, set(found.elements) - _OWN_ELEMENTS
    assert found.elements["script"] == 2
    assert found.elements["main"] == found.elements["body"] == 1
    for tag, name, value in found.attributes:
        assert not name.startswith("on") and name not in ("style", "srcdoc", "formaction", "ping")
        if name in ("href", "src", "action"):
            assert re.match(r"/(?![/\\])|\?|#|raw/|part/|curl\.txt$", value), (tag, name, value)
        if not (tag in ("option", "input") and name == "value"):  # what a form sends stays as it is
            assert not _UNSEEN.search(value), (tag, name, value)
    assert not _UNSEEN.search("".join(found.text))


def test_curl_is_quoted_and_without_secrets(tmp_path: Path, view: View) -> None:
    """The curl command is one command whatever the request says, and no secret of the body is in it."""
    import subprocess

    directory = write_run(tmp_path / "run")
    request: dict[str, Any] = {
        "model": "m'; touch pwned; echo '$(touch pwned2)`touch pwned3`",
        "messages": [{"role": "user", "content": "my key is sk-abcdefghijklmnop1234, ok?"}],
        "tools": [{"type": "mcp", "authorization": "hunter2", "headers": {"X-Api-Key": "hunter3"}}],
    }
    append(directory, "0-0", [chat_call("0-0", 0, [], {"content": "x"}, request=request)])
    answer = view(directory).client.get("/rollout/0-0/call/0/curl.txt")
    command = answer.text
    for secret in ("hunter2", "hunter3", "sk-abcdefghijklmnop1234"):
        assert secret not in command
    assert "$OPENAI_API_KEY" in command
    fake = tmp_path / "bin"
    fake.mkdir()
    (fake / "curl").write_text('#!/bin/sh\nprintf "%s\\0" "$@" > "$OUT"\n')
    (fake / "curl").chmod(0o755)
    out = tmp_path / "arguments"
    subprocess.run(
        ["/bin/sh", "-c", command],
        check=True,
        cwd=tmp_path,
        env={"PATH": f"{fake}:/usr/bin:/bin", "OUT": str(out), "OPENAI_API_KEY": "key"},
    )
    arguments = out.read_text().split("\0")
    assert arguments[1] == "http://127.0.0.1:8080/v1/chat/completions"
    body = json.loads(arguments[arguments.index("--data-binary") + 1])
    assert body["model"] == request["model"]
    assert body["messages"][0]["content"] == "my key is REDACTED, ok?"
    assert not list(tmp_path.glob("pwned*"))
