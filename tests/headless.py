"""Headless Chromium over the DevTools protocol: what a page shows, requests and complains about."""

import json
import os
import select
import shutil
import subprocess
import time
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None
)
# Pictures that are not drawn, texts whose contrast is below 4.5, and how much wider the page is than its window.
LOOK = """(() => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const light = (colors) => {
    for (const color of ["#fff", ...colors]) { canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1); }
    const rgb = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
    const [r, g, b] = rgb.map((v) => ((v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const low = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim(), element = walker.currentNode.parentElement;
    const unseen = element.closest("script, style, .unseen, .skip") || !element.getClientRects().length;
    if (!text || unseen) continue;
    const behind = [];
    for (let at = element; at; at = at.parentElement) behind.unshift(getComputedStyle(at).backgroundColor);
    const look = getComputedStyle(element), ink = element.closest("svg") ? look.fill : look.color;
    const [a, b] = [light(behind), light([...behind, ink])].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) low.push(text.slice(0, 30));
  }
  return {
    flat: [...document.images].filter((i) => !(i.complete && i.naturalWidth > 0)).map((i) => i.alt), low,
    wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    page: getComputedStyle(document.body).backgroundColor,
  };
})()"""


def needed(test):
    """Marks a test of minutes, which is skipped where there is no browser."""
    missing = pytest.mark.skipif(CHROMIUM is None, reason="no chromium or chrome binary on the PATH")
    return pytest.mark.slow(missing(test))


class Browser:
    """A DevTools connection over a pair of pipes."""

    def __init__(self, reading, writing):
        self.reading, self.writing = reading, writing
        self.last, self.buffer, self.events, self.session = 0, b"", [], {}

    def call(self, method, **params):
        self.last += 1
        message = {"id": self.last, "method": method, "params": params, **self.session}
        os.write(self.writing, json.dumps(message).encode() + b"\0")
        while (answer := self.receive(20)).get("id") != self.last:
            self.events.append(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def receive(self, seconds):
        end = time.monotonic() + seconds
        while b"\0" not in self.buffer:
            if not select.select([self.reading], [], [], max(0, end - time.monotonic()))[0]:
                raise TimeoutError(f"no message from chromium for {seconds} s")
            self.buffer += os.read(self.reading, 1 << 20)
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def drain(self, seconds):
        """Collect pending messages."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                self.events.append(self.receive(end - time.monotonic()))
            except TimeoutError:
                return

    def evaluate(self, script):
        return self.call("Runtime.evaluate", expression=script, returnByValue=True)["result"]["value"]

    def open(self, url, act=None, measure=LOOK):
        """What a page shows on a desk (`light`, `dark`) and a phone, its errors and requests; `act` is called last."""
        self.session = {}
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self.session = {"sessionId": session["sessionId"]}
        self.events.clear()
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Page.navigate", url=url)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self.receive(30))
        seen, size = SimpleNamespace(errors=[], requests=[]), {"height": 900, "deviceScaleFactor": 1}
        looks = ("light", 1100, "light"), ("phone", 360, "light"), ("dark", 1100, "dark")
        for name, width, scheme in looks:
            self.call("Emulation.setDeviceMetricsOverride", width=width, mobile=width < 500, **size)
            features = [{"name": "prefers-color-scheme", "value": scheme}]
            self.call("Emulation.setEmulatedMedia", features=features)
            setattr(seen, name, self.evaluate(measure))
        if act is not None:
            act(self.call)
        self.drain(0.5)
        for event in self.events:
            method, params = event.get("method"), event.get("params", {})
            kinds = ("error", "warning", "assert")
            console = method == "Runtime.consoleAPICalled" and params["type"] in kinds
            if console or method in ("Log.entryAdded", "Runtime.exceptionThrown"):
                seen.errors.append(str(params))
            elif method == "Network.requestWillBeSent":
                seen.requests.append(params["request"]["url"])
        seen.requests = [address for address in seen.requests if address != url and address[:5] != "data:"]
        self.call("Target.closeTarget", targetId=target)
        return seen


@contextmanager
def chromium(profile):
    command_read, command_write = os.pipe()
    answer_read, answer_write = os.pipe()
    flags = "headless no-sandbox disable-gpu disable-dev-shm-usage no-first-run disable-background-networking"
    flags += " disable-extensions disable-component-update remote-debugging-pipe"
    process = subprocess.Popen(
        [
            # It reads commands from descriptor 3 and answers on 4; messages end with a zero byte.
            *("bash", "-c", f'exec "$@" 3<&{command_read} 4>&{answer_write}', "-", CHROMIUM),
            *(f"--{flag}" for flag in [*flags.split(), f"user-data-dir={profile}"]),
        ],
        pass_fds=(command_read, answer_write),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(command_read)
    os.close(answer_write)
    try:
        yield Browser(answer_read, command_write)
    finally:
        process.kill()
        process.wait()
        os.close(command_write)
        os.close(answer_read)
