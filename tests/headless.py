"""Headless Chromium over the DevTools protocol: what a page shows, requests and complains about."""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None
)
# For the module of tests: minutes long, and only where there is a browser.
NEEDED = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium or chrome binary on the PATH"),
]

# Chromium reads commands from descriptor 3 and answers on 4; messages end with a zero byte.
LAUNCH = """import os, sys
r, w = map(int, sys.argv[1:3])
os.dup2(r, 3)
os.dup2(w, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""

PICTURES = """(() => {
  const flat = [];
  for (const i of document.images)
    if (!(i.complete && i.naturalWidth > 0 && i.naturalHeight > 0)) flat.push('img ' + i.alt);
  for (const s of document.querySelectorAll('svg')) {
    const box = s.getBBox(), place = s.getBoundingClientRect();
    const marks = [...s.querySelectorAll('path, use')].filter(m => {
      const r = m.getBoundingClientRect(), paint = getComputedStyle(m);
      return (r.width > 0 || r.height > 0) && (paint.fill !== 'none' || paint.stroke !== 'none');
    });
    if (!(box.width > 0 && box.height > 0 && place.width > 0 && place.height > 0 && marks.length > 5))
      flat.push('svg ' + s.getAttribute('aria-label'));
  }
  return {
    images: document.images.length, plots: document.querySelectorAll('svg').length, flat,
    wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    page: getComputedStyle(document.body).backgroundColor,
  };
})()"""


# Texts whose contrast is below 4.5, with it.
CONTRAST = """(() => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const over = (colors) => {
    canvas.fillStyle = "#fff"; canvas.fillRect(0, 0, 1, 1);
    for (const color of colors) { canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1); }
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((v) => ((v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const low = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim(), element = walker.currentNode.parentElement;
    const unseen = element.closest("script, style, .unseen, .skip, [hidden]") || !element.getClientRects().length;
    if (!text || unseen) continue;
    const behind = [];
    for (let at = element; at; at = at.parentElement) behind.unshift(getComputedStyle(at).backgroundColor);
    const style = getComputedStyle(element), ink = element.closest("svg") ? style.fill : style.color;
    const [a, b] = [light(over(behind)), light(over([...behind, ink]))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) low.push(`${text.slice(0, 30)}: ${ratio.toFixed(2)}`);
  }
  return low;
})()"""
LOOK = f"({{...{PICTURES}, low: {CONTRAST}}})"


@dataclass
class Seen:
    """Events while a page was open."""

    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    light: dict = field(default_factory=dict)
    phone: dict = field(default_factory=dict)
    dark: dict = field(default_factory=dict)


class Browser:
    """A DevTools connection over a pair of pipes."""

    def __init__(self, process, reading, writing):
        self.process, self.reading, self.writing = process, reading, writing
        self.last, self.buffer, self.events, self.session = 0, b"", [], None

    def call(self, method, **params):
        self.last += 1
        message = {"id": self.last, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.writing, json.dumps(message).encode() + b"\0")
        number = self.last
        while True:
            answer = self.receive(20)
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def receive(self, seconds):
        end = time.monotonic() + seconds
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.reading], [], [], max(0, end - time.monotonic()))
            if not ready:
                raise TimeoutError(f"no message from chromium for {seconds} s")
            data = os.read(self.reading, 1 << 20)
            if not data:
                raise EOFError(f"chromium ended with exit status {self.process.wait()}")
            self.buffer += data
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

    def open(self, url, shots=None, act=None, measure=LOOK):
        """What a page shows (`measure`, a script) on a desk and a phone, light and dark; `act` is called at the end."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.events.clear()
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Page.navigate", url=url)
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events):
            self.events.append(self.receive(30))
        seen = Seen()
        for name, width, scheme in (
            ("light", 1100, "light"),
            ("phone", 360, "light"),
            ("dark", 1100, "dark"),
        ):
            self.call(
                "Emulation.setDeviceMetricsOverride",
                width=width,
                height=900,
                deviceScaleFactor=1,
                mobile=width < 500,
            )
            self.call(
                "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}]
            )
            setattr(seen, name, self.evaluate(measure))
            if shots:
                picture = self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
                (shots / f"{name}.png").write_bytes(base64.b64decode(picture))
        if act is not None:
            act(self.call)
        self.drain(0.5)
        for event in self.events:
            method, params = event.get("method"), event.get("params", {})
            if method == "Log.entryAdded":
                seen.errors.append(params["entry"]["text"])
            elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
                seen.errors.append(str(params["args"]))
            elif method == "Runtime.exceptionThrown":
                seen.errors.append(str(params["exceptionDetails"]))
            elif method == "Network.requestWillBeSent":
                address = params["request"]["url"]
                if address != url and not address.startswith("data:"):
                    seen.requests.append(address)
        self.session = None
        self.call("Target.closeTarget", targetId=target)
        return seen


@contextmanager
def chromium(profile):
    command_read, command_write = os.pipe()
    answer_read, answer_write = os.pipe()
    process = subprocess.Popen(
        [
            *(sys.executable, "-c", LAUNCH, str(command_read), str(answer_write), CHROMIUM),
            *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
            *("--disable-background-networking", "--disable-extensions", "--disable-component-update"),
            *(f"--user-data-dir={profile}", "--remote-debugging-pipe"),
        ],
        pass_fds=(command_read, answer_write),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(command_read)
    os.close(answer_write)
    try:
        yield Browser(process, answer_read, command_write)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(command_write)
        os.close(answer_read)
