"""The viewer in a real browser: a demo run followed live, every page, hostile content, keys."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    Page,
    Playwright,
    expect,
    sync_playwright,
)

from otel_gym.viewer.options import ViewerOptions
from tests.viewer.browser import ARGUMENTS, NoBrowser, artefacts, chromium
from tests.viewer.captures import (
    append,
    chat_call,
    conversation,
    small_run,
    write_rollout,
    write_run,
)
from tests.viewer.payloads import MARK, PAYLOADS, hostile_record
from tests.viewer.server import RunningViewer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
WIDE, NARROW = (1280, 800), (400, 780)
expect.set_options(timeout=30_000)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless Chromium."""
    try:
        program = chromium()
    except NoBrowser as reason:
        if os.environ.get("CI") == "true":
            pytest.fail(str(reason), pytrace=False)
        pytest.skip(str(reason))
    playwright: Playwright
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield found
        found.close()


@dataclass
class Watched:
    """A page and everything that it did."""

    page: Page
    origin: str
    trouble: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def assert_clean(self) -> None:
        """Nothing on the console, no error, no dialog, and no request to anywhere else."""
        assert self.trouble == []
        assert {"{0.scheme}://{0.netloc}".format(urlsplit(url)) for url in self.requests} <= {
            self.origin
        }

    def open(self, path: str) -> None:
        """Go to a page of the viewer."""
        answer = self.page.goto(self.origin + path)
        assert answer is not None and answer.status == 200
        self.arrive(self.origin + path)

    def arrive(self, address: str) -> None:
        """Wait until the page at this address is there and hears keys."""
        self.page.wait_for_url(address)
        self.page.locator("html[data-ready]").wait_for(state="attached")


Open = Callable[..., Watched]


@pytest.fixture
def watch(browser: Browser) -> Iterator[Open]:
    """Opens a page of its own for a viewer, watched from its first request."""
    contexts: list[BrowserContext] = []
    pages: list[Watched] = []

    def start(
        viewer: RunningViewer, size: tuple[int, int] = WIDE, scheme: Any = "light"
    ) -> Watched:
        context = browser.new_context(
            viewport={"width": size[0], "height": size[1]}, color_scheme=scheme
        )
        context.grant_permissions(["clipboard-read", "clipboard-write"], origin=viewer.url)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(30_000)
        watched = Watched(page, viewer.url)
        page.on(
            "console", lambda message: watched.trouble.append(f"{message.type}: {message.text}")
        )
        page.on("pageerror", lambda error: watched.trouble.append(f"error: {error}"))
        page.on("dialog", lambda dialog: watched.trouble.append(f"dialog: {dialog.message}"))
        page.on("popup", lambda popup: watched.trouble.append(f"popup: {popup.url}"))
        page.on("request", lambda request: watched.requests.append(request.url))
        pages.append(watched)
        return watched

    yield start
    for watched in pages:
        watched.assert_clean()
    for context in contexts:
        context.close()


@pytest.fixture(scope="module")
def demo(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[RunningViewer, list[int]]]:
    """A viewer of a real demo run, and how many calls its open page showed while the demo wrote them."""
    directory = tmp_path_factory.mktemp("demo") / "demo-run"
    directory.mkdir()
    viewer = RunningViewer(ViewerOptions(directory))
    page = browser.new_page()
    page.goto(viewer.url + "/")
    code = "from otel_gym.cli.main import main; main()"
    command = [sys.executable, "-c", code, "demo", "--rollouts", "3", "--turns", "4"]
    writer = subprocess.Popen(
        [*command, "--capture-dir", str(directory)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    seen = []
    try:
        while writer.poll() is None:
            seen.append(_calls_shown(page))
            page.wait_for_timeout(200)
        assert writer.returncode == 0, writer.stderr.read() if writer.stderr else ""
    finally:
        if writer.poll() is None:
            writer.kill()
        writer.communicate()
    deadline = time.monotonic() + 30
    while _calls_shown(page) < 12 and time.monotonic() < deadline:
        page.wait_for_timeout(200)
    seen.append(_calls_shown(page))
    page.close()
    yield viewer, seen
    viewer.stop()


def _calls_shown(page: Page) -> int:
    return int(page.locator(".stat", has_text="Model calls").locator("dd").inner_text())


def test_an_open_page_follows_a_demo_while_it_is_written(
    demo: tuple[RunningViewer, list[int]],
) -> None:
    """The run page, opened once on an empty directory, fills up call by call while a real model answers."""
    _, seen = demo
    assert seen[0] == 0
    assert seen[-1] == 12
    assert seen == sorted(seen)
    assert len(set(seen)) >= 4, "not only before and after"


def test_a_person_can_click_from_run_to_call(
    demo: tuple[RunningViewer, list[int]], watch: Open
) -> None:
    """From the run to a rollout, to a call, to its neighbours and back, by mouse and by keys."""
    viewer, _ = demo
    watched = watch(viewer)
    page = watched.page
    watched.open("/")
    page.get_by_role("link", name="0-0", exact=True).click()
    watched.arrive("**/rollout/0-0/")
    rows = page.locator(".wrow a")
    assert rows.count() == 4
    rows.nth(1).click()
    watched.arrive("**/rollout/0-0/call/1/")
    assert page.get_by_text("New since call #0").is_visible()
    page.get_by_title("Next call").click()
    watched.arrive("**/rollout/0-0/call/2/")
    page.keyboard.press("[")
    watched.arrive("**/call/1/")
    page.keyboard.press("u")
    watched.arrive("**/rollout/0-0/")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    watched.arrive("**/rollout/0-0/call/1/")
    page.keyboard.press("u")
    watched.arrive("**/rollout/0-0/")
    page.keyboard.press("u")
    watched.arrive(viewer.url + "/")
    page.keyboard.press("?")
    assert page.locator("#keys").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator("#keys").is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["1280", "400"])
def test_every_page_is_readable(
    demo: tuple[RunningViewer, list[int]], watch: Open, size: tuple[int, int], scheme: str
) -> None:
    """Each page of the demo run fits its width and is quiet; what it looks like is kept as a picture."""
    viewer, _ = demo
    pages = {
        "run": "/",
        "rollout": "/rollout/1-0/",
        "call": "/rollout/1-0/call/2/",
        "compare": "/compare?a=0-0&b=1-0",
    }
    watched = watch(viewer, size, scheme)
    for name, path in pages.items():
        watched.open(path)
        page = watched.page
        assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        channels = [int(part) for part in re.findall(r"\d+", background)[:3]]
        assert (sum(channels) > 600) == (scheme == "light")
        assert (
            float(page.evaluate("getComputedStyle(document.body).fontSize.replace('px','')")) >= 12
        )
        page.screenshot(path=artefacts() / f"{name}-{size[0]}-{scheme}.png", full_page=True)


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["1280", "400"])
def test_names_without_a_break_stay_on_the_page(
    watch: Open, tmp_path: Path, size: tuple[int, int]
) -> None:
    """Ids, models, agents, tools and texts of hundreds of characters without a space widen no page."""
    directory = write_run(tmp_path / "run")
    long_id = "L" * 180
    records = conversation("7-0", 3)
    records[0]["response"]["model"] = "model-" + "m" * 150
    records[1].update(error_category="e" * 80, status_code=503, exception={"type": "T" * 300})
    answer: dict[str, Any] = {"content": "W" * 900, "reasoning_content": "R" * 900}
    function = {"name": "f" * 120, "arguments": json.dumps({"k" * 80: "v" * 900})}
    answer["tool_calls"] = [{"id": "c" * 100, "type": "function", "function": function}]
    records[2]["response"]["choices"][0]["message"] = {"role": "assistant", **answer}
    records[2]["sampling"] = {"requested": {"x" * 100: "y" * 200}, "pinned": ["x" * 100]}
    append(directory, "7-0", records)
    write_rollout(directory, "7-0", agent="agent_" + "g" * 150, error="B" * 500, reward=-123456.789)
    for attempt in range(30):
        name = f"{long_id}-a{attempt}" if attempt else long_id
        append(directory, name, conversation(name, 2, start=5.0 * attempt))
    viewer = RunningViewer(ViewerOptions(directory))
    watched = watch(viewer, size)
    paths = ["/", "/rollout/7-0/", f"/rollout/{long_id}-a20/", f"/compare?a=7-0&b={long_id}"]
    paths += [f"/rollout/7-0/call/{number}/" for number in range(3)]
    for path in paths:
        watched.open(path)
        assert watched.page.evaluate("document.documentElement.scrollWidth") <= size[0], path
    watched.open(f"/rollout/{long_id}-a20/")
    assert watched.page.locator("#attempts tr.this").evaluate(
        "row => { const list = row.closest('#attempts').getBoundingClientRect(), at = row.getBoundingClientRect();"
        " return at.top >= list.top && at.bottom <= list.bottom; }"
    )
    viewer.stop()


def test_the_picture_of_the_readme(
    demo: tuple[RunningViewer, list[int]], watch: Open, tmp_path: Path
) -> None:
    """The rollout page of a real demo run makes a picture small enough to ship; the one that is shipped is such a picture."""
    viewer, _ = demo
    watched = watch(viewer, (1200, 560))
    watched.open("/rollout/0-0/")
    picture = watched.page.screenshot()
    (artefacts() / "readme.png").write_bytes(picture)
    if os.environ.get("OTEL_GYM_UPDATE_IMAGES") == "1":
        (IMAGES / "rollout.png").write_bytes(picture)
    shipped = (IMAGES / "rollout.png").read_bytes()
    for image in (picture, shipped):
        assert image.startswith(b"\x89PNG")
        assert len(image) < 150_000
    width, height = (int.from_bytes(shipped[at : at + 4], "big") for at in (16, 20))
    assert (width, height) == (1200, 560)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningViewer]:
    """A run with every payload in every field, one rollout a payload."""
    directory = write_run(tmp_path_factory.mktemp("hostile") / "run")
    for number, name in enumerate(sorted(PAYLOADS)):
        payload = PAYLOADS[name]
        rollout_id = f"{number}-0"
        append(
            directory, rollout_id, [hostile_record(rollout_id, call, payload) for call in (0, 1)]
        )
        write_rollout(directory, rollout_id, agent=payload, error=payload, extra={payload: payload})
    viewer = RunningViewer(ViewerOptions(directory))
    yield viewer
    viewer.stop()


@pytest.mark.parametrize("number", range(len(PAYLOADS)), ids=sorted(PAYLOADS))
def test_hostile_content_does_not_run(hostile: RunningViewer, watch: Open, number: int) -> None:
    """Opened, unfolded, loaded and clicked through, no payload runs, opens, asks or breaks the page."""
    watched = watch(hostile)
    page = watched.page
    base = f"/rollout/{number}-0/"
    for path in (base, f"{base}call/0/", f"{base}call/1/", f"/compare?a={number}-0&b={(number + 1) % len(PAYLOADS)}-0"):  # fmt: skip
        watched.open(path)
        for details in page.locator("details").all():
            details.evaluate("one => { one.open = true; }")
        page.wait_for_timeout(100)
        for pre in page.locator("details[data-body] pre").all():
            pre.locator("xpath=self::*[string-length(.) > 0]").wait_for()
        page.mouse.move(200, 200)
        page.mouse.move(300, 300)
        assert page.evaluate(f"typeof window.{MARK}") == "undefined"
        assert (
            urlsplit(page.url).path + ("?" + urlsplit(page.url).query if "?" in path else "")
            == path
        )
        assert page.locator("main").count() == 1
        assert page.locator("header.top").is_visible()
    assert page.locator("iframe, img, object, embed, base").count() == 0


def test_hostile_run_page_is_inert(hostile: RunningViewer, watch: Open) -> None:
    """All payloads at once on the run page, its filters and its live update do nothing either."""
    watched = watch(hostile)
    watched.open("/")
    page = watched.page
    assert page.locator(".rollouts tbody tr").count() == len(PAYLOADS)
    page.fill("#filter", PAYLOADS["image"])
    page.keyboard.press("Enter")
    page.wait_for_url("**q=*")
    page.get_by_text("No rollout fits the filter.").wait_for()
    assert page.input_value("#filter") == PAYLOADS["image"]
    assert page.evaluate(f"typeof window.{MARK}") == "undefined"


def test_bodies_unfold_and_are_copied(browser: Browser, watch: Open, tmp_path: Path) -> None:
    """Bodies load when they are unfolded, long texts when they are asked for, and curl is copied."""
    directory = write_run(tmp_path / "run")
    long = "0123456789" * 5_000 + "the end"
    append(
        directory,
        "0-0",
        [chat_call("0-0", 0, [{"role": "user", "content": long}], {"content": "ok"})],
    )
    viewer = RunningViewer(ViewerOptions(directory))
    try:
        watched = watch(viewer)
        watched.open("/rollout/0-0/call/0/")
        page = watched.page
        request = page.locator('details[data-body="raw/request"]')
        assert not any("raw/" in url for url in watched.requests)
        request.locator("summary").click()
        request.get_by_text('"temperature": 0.7').wait_for()
        assert page.get_by_text("the end").count() == 1  # in the request, unfolded
        page.get_by_text("Show all").click()
        page.locator(".message.user pre", has_text="the end").wait_for()
        page.get_by_text("Copy as curl").click()
        page.get_by_text("Copied").wait_for()
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied.startswith("curl -sS 'http://127.0.0.1:8080/v1/chat/completions'")
    finally:
        viewer.stop()


def test_live_update_keeps_what_a_person_is_doing(
    browser: Browser, watch: Open, tmp_path: Path
) -> None:
    """New calls appear on an open rollout page; the focused row and unfolded details stay, and the theme is remembered."""
    directory = small_run(tmp_path / "run")
    viewer = RunningViewer(ViewerOptions(directory))
    try:
        watched = watch(viewer)
        watched.open("/rollout/0-1/")
        page = watched.page
        page.get_by_text("Rollout record").click()
        page.keyboard.press("j")
        page.keyboard.press("j")
        focused = "document.activeElement.getAttribute('href')"
        before = page.evaluate(focused)
        append(directory, "0-1", conversation("0-1", 5, start=2.0)[3:])
        page.locator(".wrow").nth(4).wait_for()
        assert page.evaluate(focused) == before == "/rollout/0-1/call/1/"
        assert page.locator("details.raw").first.evaluate("one => one.open")
        page.keyboard.press("t")
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        page.reload()
        watched.arrive("**/rollout/0-1/")
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        watched.open("/")
        page.fill("#filter", "half-typed")
        append(directory, "0-1", conversation("0-1", 6, start=2.0)[5:])
        page.locator(".stat", has_text="Model calls").locator("dd", has_text="18").wait_for()
        assert page.input_value("#filter") == "half-typed"
        assert page.evaluate("document.activeElement.id") == "filter"
    finally:
        viewer.stop()


def test_an_open_page_says_when_its_rollout_is_gone_and_follows_what_comes_in_its_place(
    browser: Browser, tmp_path: Path
) -> None:
    """Cleared, the lamp says so and what was there stays to be read; the attempt that is written in its place appears by itself."""
    directory = write_run(tmp_path / "run")
    append(directory, "0-0", conversation("0-0", 4))
    viewer = RunningViewer(ViewerOptions(directory))
    page = browser.new_page()
    page.goto(f"{viewer.url}/rollout/0-0/")
    lamp = page.locator("#live")
    expect(lamp).to_have_text("live")
    (directory / "0-0.capture.jsonl").unlink()
    expect(lamp).to_have_text("gone")
    assert page.locator(".wrow").count() == 4
    append(directory, "0-0", conversation("0-0-again", 2))
    expect(page.locator(".wrow")).to_have_count(2)
    expect(lamp).to_have_text("live")
    viewer.stop()
    expect(lamp).to_have_text("lost")
    page.close()


def test_a_rollout_of_2000_calls_is_usable(browser: Browser, watch: Open, tmp_path: Path) -> None:
    """A rollout of 2,000 calls opens, shows them all in the overview, and can be walked through by keys and pages."""
    directory = write_run(tmp_path / "run")
    with (directory / "0-0.capture.jsonl").open("w") as file:
        import json

        for number in range(2000):
            record = chat_call(
                "0-0",
                number,
                [{"role": "user", "content": str(number)}],
                {"content": "ok"},
                at=number * 1.1,
            )
            file.write(json.dumps(record) + "\n")
    viewer = RunningViewer(ViewerOptions(directory))
    try:
        watched = watch(viewer)
        watched.open("/rollout/0-0/")
        page = watched.page
        assert page.locator(".wrow").count() == 500
        assert page.locator(".overview path.gen").get_attribute("d").count("M") == 2000
        for _ in range(30):
            page.keyboard.press("j")
        assert (
            page.evaluate("document.activeElement.getAttribute('href')") == "/rollout/0-0/call/29/"
        )
        page.get_by_text("Later calls").click()
        page.wait_for_url("**?page=2")
        assert page.locator(".wrow .num").first.inner_text() == "500"
    finally:
        viewer.stop()


def test_the_printed_address_with_its_token_opens_in_a_browser(
    browser: Browser, watch: Open, run_dir: Path
) -> None:
    """Opening the address with the token once is enough; the token is gone from the address bar and the pages work."""
    viewer = RunningViewer(ViewerOptions(run_dir, token="a-token-of-the-tests-0123456789"))
    try:
        watched = watch(viewer)
        page = watched.page
        page.goto(f"{viewer.url}/?token=a-token-of-the-tests-0123456789")
        assert page.url == viewer.url + "/"
        page.get_by_role("link", name="0-0", exact=True).click()
        watched.arrive("**/rollout/0-0/")
        assert page.locator(".wrow").count() == 5
    finally:
        viewer.stop()
