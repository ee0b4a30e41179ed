"""The page in headless Chromium: no console errors, no requests, all images drawn, no horizontal scrolling."""

import base64
import fcntl
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

from mvcl.report import write_report, write_study

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None
)
pytestmark = [
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

    def open(self, url, shots=None, act=None):
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
            setattr(seen, name, self.evaluate(PICTURES) | {"low": self.evaluate(CONTRAST)})
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


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


def test_one_run(browser, run, tmp_path):
    seen = browser.open(write_report([run], tmp_path / "r.html").as_uri(), tmp_path)
    assert seen.errors == []
    assert seen.requests == []
    for look in (seen.light, seen.phone, seen.dark):
        assert look["flat"] == look["low"] == []
        assert (look["images"], look["plots"]) == (40, 7)
        assert look["wide"] <= 0
    assert seen.light["page"] != seen.dark["page"]


def test_the_geometry_of_a_run(browser, run, write_geometry, tmp_path):
    write_geometry(run)
    seen = browser.open(write_report([run], tmp_path / "r.html").as_uri(), tmp_path)
    assert seen.errors == []
    assert seen.requests == []
    for look in (seen.light, seen.phone, seen.dark):
        assert look["flat"] == look["low"] == []
        assert look["plots"] == 7 + 6
        assert look["wide"] <= 0


SHOWN = """(() => {
  const shown = (cell) => [...document.querySelectorAll(`[id$="-cell${cell}"], li.cell${cell}`)].map(
    (e) => getComputedStyle(e).display !== 'none');
  return [0, 1, 2, 3].map((cell) => [shown(cell).length, shown(cell).filter(Boolean).length]);
})()"""


def test_a_study_and_its_levels(browser, study_folder, tmp_path):
    page = write_study(study_folder(tmp_path / "study"))
    pressed = []

    def press(call):
        """Focus the first checkbox as the keyboard does, and press the space bar."""
        browser.evaluate("document.querySelector('input').focus()")
        pressed.append(browser.evaluate(SHOWN))
        for kind in ("keyDown", "keyUp"):
            call(
                "Input.dispatchKeyEvent", type=kind, key=" ", code="Space", text=" ", windowsVirtualKeyCode=32
            )
        pressed.append(browser.evaluate(SHOWN))

    seen = browser.open(page.as_uri(), tmp_path, press)
    assert seen.errors == []
    assert seen.requests == []
    for look in (seen.light, seen.phone, seen.dark):
        assert look["flat"] == look["low"] == []
        assert (look["images"], look["plots"]) == (1, 3)
        assert look["wide"] <= 0
    assert pressed == [[[4, 4]] * 4, [[4, 0], [4, 0], [4, 4], [4, 4]]]


def test_several_runs_are_sorted_by_the_keyboard(browser, make_run, write_geometry, tmp_path):
    runs = [make_run(name, k=k) for name, k in (("a", 2), ("b", 3), ("c", 4))]
    write_geometry(runs[0])
    for run, value in zip(runs, (0.7, 0.9, 0.8)):
        content = json.loads((run / "evaluation.json").read_text())
        content["rows"]["trained encoder"][0]["value"] = value
        (run / "evaluation.json").write_text(json.dumps(content))
    orders, names = [], []

    def press(call):
        tabs = 0
        while browser.evaluate("document.activeElement.textContent") != "k-NN":
            _key(call, "Tab", 9)
            tabs += 1
            assert tabs < 40
        for _ in range(3):
            orders.append(
                browser.evaluate(
                    "[[...document.querySelector('table').tBodies[0].rows].map((r) => r.cells[0].textContent),"
                    " document.activeElement.parentElement.getAttribute('aria-sort')]"
                )
            )
            _key(call, "Enter", 13, "\r")
        call("Accessibility.enable")
        nodes = call("Accessibility.getFullAXTree")["nodes"]
        names.extend(
            (n["role"]["value"], n.get("name", {}).get("value", "")) for n in nodes if not n["ignored"]
        )

    seen = browser.open(write_report(runs, tmp_path / "r.html").as_uri(), tmp_path, press)
    assert (seen.errors, seen.requests) == ([], [])
    for look in (seen.light, seen.phone, seen.dark):
        assert look["flat"] == look["low"] == []
        assert look["wide"] <= 0
    assert orders == [
        [["b", "c", "a"], "descending"],
        [["a", "c", "b"], "ascending"],
        [["b", "c", "a"], "descending"],
    ]
    roles = [role for role, _ in names]
    assert {"main", "navigation", "banner"} <= set(roles)
    assert ("heading", "Results") in names
    assert ("button", "k-NN") in names  # without its arrow
    assert ("region", "Table: Test results of the trained encoder, the best by k-NN first") in names
    assert all(
        name for role, name in names if role in ("image", "region", "table", "button", "link", "heading")
    )


def _key(call, key, code, text=None):
    for kind in ("keyDown", "keyUp"):
        more = {} if text is None else {"text": text}
        call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **more)


def test_a_run_in_progress_reloads_where_it_is_asked_to(browser, run, tmp_path):
    """Focus, scroll and folds stay as they were; the page that has ended has no checkbox."""
    page, found = tmp_path / "r.html", []
    beat = {"step": 30, "steps": 100, "doing": "training", "unix_time": time.time()}
    lock = open(run / ".lock", "w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    (run / "heartbeat.json").write_text(json.dumps(beat))

    def act(call):
        found.append(
            browser.evaluate(
                "[document.getElementById('reload').checked, document.querySelector('h2').textContent]"
            )
        )
        browser.evaluate("document.getElementById('reload').click()")
        browser.evaluate("document.querySelector('details').open = true")
        browser.evaluate("document.querySelector('summary').focus()")
        top = browser.evaluate("scrollY")
        (run / "heartbeat.json").write_text(json.dumps(beat | {"step": 60}))
        write_report([run], page)
        browser.events.clear()
        deadline = time.monotonic() + 50
        while not any(e.get("method") == "Page.loadEventFired" for e in browser.events):
            assert time.monotonic() < deadline
            browser.drain(0.5)
        browser.drain(1.5)
        found.append(
            browser.evaluate(
                "[document.getElementById('reload').checked, document.activeElement.tagName,"
                " document.querySelector('details').open, document.getElementById('announced').textContent]"
            )
        )
        assert abs(browser.evaluate("scrollY") - top) < 2
        assert top > 100

    seen = browser.open(write_report([run], page).as_uri(), tmp_path, act)
    lock.close()
    assert seen.errors == []
    assert seen.dark["low"] == seen.light["low"] == []
    assert seen.phone["wide"] <= 0
    assert found == [[False, "State"], [True, "SUMMARY", True, "Reloaded. Training: step 60 of 100."]]


def test_several_runs_and_hostile_names(browser, make_run, tmp_path):
    evil = "</script><script>alert(1)</script><img src=http://127.0.0.1:9/x onerror=alert(1)>"
    runs = [make_run("a"), make_run("b" * 80, k=8, epsilon=0.1), make_run("c", classes=(evil,) * 10)]
    for shown in (runs, runs[2:], runs[1:2]):
        seen = browser.open(write_report(shown, tmp_path / "r.html").as_uri())
        assert seen.errors == []
        assert seen.requests == []
        for look in (seen.light, seen.phone, seen.dark):
            assert look["flat"] == look["low"] == []
            assert look["plots"] == (6 if len(shown) > 1 else 7)
            assert look["wide"] <= 0


@pytest.mark.parametrize(
    ("before", "after", "which"),
    [
        ("</body>", "<script>console.error('x')</script></body>", "errors"),
        ("</body>", "<script>nothing()</script></body>", "errors"),
        ("</body>", '<link rel="stylesheet" href="http://127.0.0.1:9/a.css"></body>', "requests"),
        ("</body>", '<img src="http://127.0.0.1:9/a.png" alt=""></body>', "requests"),
        ("</body>", '<img src="no.png" alt=""></body>', "requests"),
        ("</body>", '<img src="data:image/png;base64,iVBORw0KGgo=" alt="truncated"></body>', "flat"),
        ("</body>", '<svg class="plot" viewBox="0 0 9 9"></svg></body>', "flat"),
        ("<path ", "<nopath ", "flat"),
        ("</body>", '<div style="width: 2000px">x</div></body>', "wide"),
    ],
)
@pytest.mark.parametrize("policy", ["kept", "removed"])
def test_checks_detect_a_broken_page(browser, run, tmp_path, before, after, which, policy):
    """The checks above can fail, with the page's own Content-Security-Policy and without it."""
    (run / "embeddings.npz").unlink()
    out = write_report([run], tmp_path / "r.html")
    text = out.read_text().replace(before, after)
    if policy == "removed":
        text = text.replace('http-equiv="Content-Security-Policy"', 'name="none"')
    elif which == "requests":
        which = "errors"  # the policy blocks the request with a console error
    out.write_text(text)
    seen = browser.open(out.as_uri())
    if which == "wide":
        assert seen.phone["wide"] > 0
    elif which == "flat":
        assert len(seen.light["flat"]) >= 1
    else:
        assert getattr(seen, which)
