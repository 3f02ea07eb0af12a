"""The pages in a real browser: live without reloading, usable by keyboard, in light and dark.

Needs Chromium (Debian: `apt install chromium`); without it these tests are skipped.
"""

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable
from html.parser import HTMLParser
from pathlib import Path

import chromium
import pytest
from standing import Standing

browser = pytest.mark.skipif(
    chromium.find() is None, reason="no Chromium; on Debian: apt install chromium"
)
LIVE = "document.getElementById('pulse').dataset.state === 'live'"
WITHIN_S = 2.0
SHIFT = 8


def in_browser(look: Callable[[chromium.Tab], Awaitable[None]]) -> None:
    """Run it with a page, about which the browser must not complain in the end."""

    async def run() -> None:
        async with chromium.tab() as tab:
            await look(tab)
            assert not tab.complaints

    asyncio.run(run())


def address(standing: Standing, path: str) -> str:
    return f"http://127.0.0.1:{standing.port}{path}"


@browser
def test_a_run_that_is_fired_later_appears_without_reloading(face: Standing) -> None:
    face.put("appears")

    async def look(tab: chromium.Tab) -> None:
        await tab.go(address(face, "/t/default/executions?job=appears"))
        await tab.until(LIVE)
        await tab.value("window.neverReloaded = true")
        assert await tab.value("document.querySelectorAll('.row').length") == 0
        await asyncio.to_thread(face.jobs, "POST", "appears:trigger")
        await tab.until("document.querySelectorAll('.row').length === 1", WITHIN_S)
        assert "succeeded" in await tab.value("document.querySelector('.row').innerText")
        assert await tab.value("window.neverReloaded")

    in_browser(look)


@browser
def test_pages_go_on_when_the_gateway_was_started_again(fragile: Standing) -> None:
    fragile.start("run", "scheduler", "--member", "one")
    gateway = fragile.start_gateway()
    fragile.put("survives")

    async def look(tab: chromium.Tab) -> None:
        await tab.go(address(fragile, "/t/default/executions?job=survives"))
        await tab.until(LIVE)
        await tab.value("window.neverReloaded = true")
        gateway.kill()
        await tab.until("document.getElementById('pulse').dataset.state === 'lost'")
        assert "reconnecting" in await tab.value("document.getElementById('pulse').innerText")
        await asyncio.sleep(3)  # long enough for several vain attempts
        await asyncio.to_thread(fragile.start_gateway)
        await tab.until(LIVE)
        await asyncio.to_thread(fragile.jobs, "POST", "survives:trigger")
        await tab.until("document.querySelectorAll('.row').length === 1", WITHIN_S)
        assert await tab.value("window.neverReloaded")
        tab.complaints.clear()  # a refused connection is told on the console, and is meant here

    in_browser(look)


@browser
def test_a_job_is_triggered_paused_and_resumed_from_its_page(face: Standing) -> None:
    face.put("steered", name="<b>Stee&red</b>")
    state = "document.getElementById('live').dataset.state"

    async def look(tab: chromium.Tab) -> None:
        await tab.go(address(face, "/t/default/jobs/steered"))
        await tab.until(LIVE)
        assert await tab.value("document.querySelector('.name').innerText") == "<b>Stee&red</b>"
        await tab.value("document.getElementById('trigger').click()")
        await tab.until("document.querySelectorAll('.row').length === 1", WITHIN_S)
        assert "triggered" in await tab.value("document.getElementById('said').innerText")
        await tab.value("document.getElementById('note').value = 'a rest'")
        await tab.value("document.getElementById('pause').click()")
        await tab.until(f"{state} === 'PAUSED'", WITHIN_S)
        shown = await tab.value("document.getElementById('live').innerText")
        assert re.search(r"paused since .* by page: “a rest”", shown)
        assert not await tab.value("document.getElementById('pause').offsetParent")
        await tab.value("document.getElementById('resume').click()")
        await tab.until(f"{state} === 'ACTIVE'", WITHIN_S)

    in_browser(look)
    job = face.jobs("GET", "steered").json
    assert (job["state"], job["hold"]) == ("ACTIVE", None)


@browser
def test_an_execution_is_cancelled_from_its_page_and_what_happened_is_shown(
    face: Standing,
) -> None:
    face.put("stops", target={"worker": {"handler": "nobody"}})
    run = face.jobs("POST", "stops:trigger").json["execution_id"].partition(":")[2]
    face.executions("stops", 1, "queued")

    async def look(tab: chromium.Tab) -> None:
        await tab.go(address(face, f"/t/default/jobs/stops/executions/{run}"))
        await tab.until(LIVE)
        assert await tab.value("document.querySelectorAll('.timeline li').length") == 1
        await tab.value("document.getElementById('cancel').click()")
        await tab.until("document.querySelectorAll('.timeline li').length === 2", WITHIN_S)
        assert "cancelled" in await tab.value("document.querySelector('.big').innerText")
        assert not await tab.value("document.getElementById('cancel')")

    in_browser(look)


@browser
def test_what_is_refused_is_said_on_the_page(face: Standing) -> None:
    face.put("gone")

    async def look(tab: chromium.Tab) -> None:
        await tab.go(address(face, "/t/default/jobs/gone"))
        await tab.until(LIVE)
        await asyncio.to_thread(face.jobs, "DELETE", "gone")
        await tab.until("document.getElementById('live').dataset.state === 'GONE'", WITHIN_S)
        await tab.value("document.getElementById('trigger').click()")
        await tab.until("document.getElementById('said').dataset.kind === 'wrong'", WITHIN_S)
        assert "there is no job" in await tab.value("document.getElementById('said').innerText")
        tab.complaints.clear()  # the console tells of the status, which is meant here

    in_browser(look)


@browser
def test_the_pages_are_usable_by_keyboard(face: Standing) -> None:
    face.put("keys-one")
    face.put("keys-two")
    seen = face.put("keys-three", schedules=[{"every": "2h"}]).headers["horolog-sequence"]
    face.jobs("GET", f"keys-three?min_seq={seen}")
    focused = "document.activeElement.id"

    async def look(tab: chromium.Tab) -> None:
        await tab.go(address(face, "/t/default/jobs"))
        await tab.until(LIVE)
        await tab.press("Tab", "Tab")
        assert await tab.value("document.activeElement.className") == "skip"
        await tab.press("/", "Slash", "/")
        assert await tab.value(focused) == "q"
        for letter in "keys-":
            await tab.press(letter, "", letter)
        await tab.until("document.querySelectorAll('.row').length === 3", WITHIN_S)
        assert await tab.value("location.search") == "?q=keys-&state="
        for _ in range(2):
            await tab.press("Tab", "Tab")
        assert await tab.value(focused) == "ja-keys-one"
        # What has the focus keeps it when the page changes under it.
        await tab.value("document.getElementById('live').mark = true")
        await asyncio.to_thread(face.jobs, "POST", "keys-two:trigger")
        await tab.until("!document.getElementById('live').mark", WITHIN_S)
        assert await tab.value(focused) == "ja-keys-one"
        outline = await tab.value("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none"
        await tab.press("Tab", "Tab")
        assert await tab.value(focused) == "jt-keys-one"
        await tab.press("Enter", "Enter", "\r")
        await tab.until("document.getElementById('said').innerText.includes('triggered')", WITHIN_S)
        await tab.press("Tab", "Tab", modifiers=SHIFT)
        await tab.press("Enter", "Enter", "\r")
        await tab.until("location.pathname.startsWith('/t/default/jobs/keys-one')")

    in_browser(look)
    assert len(face.executions("keys-one", 1)) == 1


CONTRASTS = """
(() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgb = (colour, under) => {
    canvas.clearRect(0, 0, 1, 1);
    if (under) { canvas.fillStyle = under; canvas.fillRect(0, 0, 1, 1); }
    canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => {
    const part = (v) => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
    return .2126 * part(r) + .7152 * part(g) + .0722 * part(b);
  };
  const behind = (one) => {
    for (; one; one = one.parentElement) {
      const colour = getComputedStyle(one).backgroundColor;
      if (rgb(colour)[3] === 255) return colour;
    }
    return 'white';
  };
  const found = [];
  for (const one of document.querySelectorAll('main *, header *, footer *')) {
    const text = [...one.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!text || !one.offsetParent || one.closest('.sr')) continue;
    const ground = behind(one);
    const [a, b] = [light(rgb(getComputedStyle(one).color, ground)), light(rgb(ground))];
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < 4.5) found.push(`${one.className || one.tagName} ${one.innerText} ${ratio.toFixed(2)}`);
  }
  return JSON.stringify([...new Set(found)]);
})()
"""  # noqa: E501


@browser
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_text_can_be_read_in_light_and_dark(
    face: Standing, dark: bool, tmp_path: Path
) -> None:
    """The contrast of each is at least 4.5, in every state there is."""
    face.put("read-paused")
    face.jobs("POST", "read-paused:pause?note=why")
    face.put("read-failed", target={"topic": {"name": "is-not-there"}})
    face.put("read-waits", target={"worker": {"handler": "nobody"}})
    for job in ("read-failed", "read-waits", "read-waits"):
        face.jobs("POST", f"{job}:trigger")
    for job, count in (("read-failed", 1), ("read-waits", 2)):
        face.executions(job, count)
    pages = ("/t/default/jobs?q=read-", "/t/default/executions", "/t/default/jobs/read-waits")

    async def look(tab: chromium.Tab) -> None:
        for page in pages:
            await tab.go(address(face, page))
            await tab.until(LIVE)
            await tab.picture(tmp_path / "page.png", dark=dark)
            assert json.loads(await tab.value(CONTRASTS)) == []
        ground = await tab.value("getComputedStyle(document.documentElement).backgroundColor")
        lightest = max(int(part) for part in re.findall(r"\d+", ground)[:3])
        assert (lightest < 60) == dark

    in_browser(look)


# --- without a browser -------------------------------------------------------------------------


class Outline(HTMLParser):
    """What a page is made of."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


PAGES = ("/t/default/jobs", "/t/default/jobs/plain", "/t/default/executions",
         "/t/default/jobs/plain/executions/RUN", "/t/default/jobs/nobody")  # fmt: skip


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_whole_names_everything_and_carries_nothing_inline(
    face: Standing, page: str
) -> None:
    face.put("plain")
    run = face.jobs("POST", "plain:trigger").json["execution_id"].partition(":")[2]
    face.executions("plain", 1)
    answer = face.http("GET", page.replace("RUN", run))
    assert answer.status == (404 if "nobody" in page else 200)
    outline = Outline(answer.body.decode())
    labelled = {attrs.get("for") for tag, attrs in outline.tags if tag == "label"}
    ids = [attrs["id"] for _, attrs in outline.tags if "id" in attrs]
    assert len(ids) == len(set(ids)), "ids are what keeps the focus where it is"
    for tag, attrs in outline.tags:
        assert "style" not in attrs
        assert not any(name.startswith("on") for name in attrs)
        assert tag != "style"
        if tag == "script":
            assert (attrs.get("src") or "").startswith("/static/")
        if tag in ("input", "select"):
            assert attrs["id"] in labelled
        if tag == "html":
            assert attrs["lang"] == "en"


def test_forms_work_without_scripts(face: Standing) -> None:
    face.put("formal")
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    done = face.http("POST", "/t/default/jobs/formal/pause", raw=b"note=a+rest", headers=headers)
    assert (done.status, done.headers["location"]) == (303, "/t/default/jobs/formal")
    until_s = time.monotonic() + 10
    while face.jobs("GET", "formal").json["hold"] is None:
        assert time.monotonic() < until_s
    assert face.jobs("GET", "formal").json["hold"]["note"] == "a rest"
    refused = face.http("POST", "/t/default/jobs/nobody/pause", headers=headers)
    assert refused.status == 404
    assert "there is no job default/nobody" in refused.body.decode()
    assert face.http("POST", "/t/default/jobs/formal/explode", headers=headers).status == 404


def test_what_users_wrote_is_never_markup(face: Standing) -> None:
    evil = "<script>alert(1)</script>\"'"
    face.put("evil", name=evil, payload={"x": evil})
    face.jobs("POST", f"evil:pause?note={'%3Cimg%20src%3Dx%3E'}")
    for page in ("/t/default/jobs?q=evil", "/t/default/jobs/evil",
                 f"/t/default/jobs?q={'%22%3E%3Cscript%3E'}"):  # fmt: skip
        text = face.http("GET", page).body.decode()
        assert "<script>" not in text
        assert "<img src=x" not in text
