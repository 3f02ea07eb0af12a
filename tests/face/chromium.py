"""A headless Chromium, driven over its DevTools protocol: as little of it as the tests need."""

import asyncio
import base64
import itertools
import json
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

NAMES = ("chromium", "chromium-browser", "google-chrome")
START_S = 30.0
STEP_S = 0.02


def find() -> str | None:
    """The browser's program, if there is one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Tab:
    """One page of the browser."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self.complaints: list[str] = []
        """What the browser's console said was wrong."""
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for message in self._socket:
            told = json.loads(message.data)
            answer = self._answers.pop(told.get("id", 0), None)
            if answer is not None and not answer.done():
                answer.set_result(told)
            match told.get("method"):
                case "Log.entryAdded":
                    entry = told["params"]["entry"]
                    if entry["level"] in ("error", "warning"):
                        self.complaints.append(f"{entry['text']} {entry.get('url', '')}")
                case "Runtime.exceptionThrown":
                    self.complaints.append(json.dumps(told["params"]["exceptionDetails"]))
                case "Page.javascriptDialogOpening":
                    await self._send("Page.handleJavaScriptDialog", accept=True)

    async def _send(self, method: str, **parameters: Any) -> int:
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        return number

    async def call(self, method: str, **parameters: Any) -> Any:
        """One command of the protocol."""
        answer = asyncio.get_running_loop().create_future()
        number = await self._send(method, **parameters)
        self._answers[number] = answer
        told = await asyncio.wait_for(answer, START_S)
        assert "error" not in told, told
        return told["result"]

    async def begin(self) -> None:
        for domain in ("Page", "Runtime", "Log"):
            await self.call(f"{domain}.enable")

    async def go(self, url: str) -> None:
        """Open an address, and return when it is loaded."""
        await self.call("Page.navigate", url=url)
        await self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    async def value(self, expression: str) -> Any:
        """What an expression comes to in the page."""
        told = await self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    async def until(self, expression: str, within_s: float = START_S) -> float:
        """Wait until an expression is true in the page; how long it took."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        while not await self.value(f"!!({expression})"):
            assert loop.time() - began_s < within_s, f"not within {within_s} s: {expression}"
            await asyncio.sleep(STEP_S)
        return loop.time() - began_s

    async def press(self, key: str, code: str, text: str = "", modifiers: int = 0) -> None:
        """A key, as from a keyboard."""
        keys = {"Tab": 9, "Enter": 13}
        common = {
            "key": key, "code": code, "modifiers": modifiers,
            "windowsVirtualKeyCode": keys.get(key, ord(key[0])),
        }  # fmt: skip
        await self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    async def picture(
        self, path: Path, *, dark: bool, width: int = 1280, height: int = 860
    ) -> None:
        """A picture of the page."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])
        await self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                        deviceScaleFactor=1, mobile=False)  # fmt: skip
        await asyncio.sleep(0.3)
        told = await self.call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(told["data"]))


@asynccontextmanager
async def tab() -> AsyncIterator[Tab]:
    """A page of a browser of its own."""
    program = find()
    assert program is not None
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as folder:
        process = await asyncio.create_subprocess_exec(
            program, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
            "--disable-dev-shm-usage", "--remote-debugging-port=0", "--remote-allow-origins=*",
            f"--user-data-dir={folder}", "about:blank",
            stderr=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        try:
            port = await _port(Path(folder) / "DevToolsActivePort")
            async with aiohttp.ClientSession() as session:
                async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                    pages = [p for p in await answer.json() if p["type"] == "page"]
                address = pages[0]["webSocketDebuggerUrl"]
                async with session.ws_connect(address, max_msg_size=0) as socket:
                    found = Tab(socket)
                    await found.begin()
                    try:
                        yield found
                    finally:
                        found._reader.cancel()
        finally:
            process.terminate()
            await process.wait()


async def _port(file: Path) -> int:
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    while not file.exists() or not file.read_text().strip():
        assert loop.time() - began_s < START_S, "the browser does not start"
        await asyncio.sleep(STEP_S)
    return int(file.read_text().split()[0])
