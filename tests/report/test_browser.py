"""The page in headless Chromium: no console errors, no requests, all images drawn, no horizontal scrolling."""

import headless
import pytest
from run_pages import drawn, measured

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with headless.chromium(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


def sound(seen):
    """Whether nothing is wrong with a page."""
    looks = (seen.light, seen.phone, seen.dark)
    assert (seen.errors, seen.requests) == ([], [])
    assert [look["flat"] + look["low"] for look in looks] == [[], [], []]
    assert [look["wide"] for look in looks] == [0, 0, 0]
    assert seen.light["page"] != seen.dark["page"]


@headless.needed
def test_one_run(browser, whole, tmp_path):
    sound(browser.open((whole[0].parent / "new" / "report.html").as_uri(), tmp_path))


@headless.needed
def test_hostile_and_long_names(browser, make_run, tmp_path):
    evil = "</script><script>alert(1)</script><img src=http://127.0.0.1:9/x onerror=alert(1)>"
    runs = [make_run("a"), make_run("b" * 80, k=8, epsilon=0.1), make_run("c", classes=(evil,) * 10)]
    for shown in (runs, runs[2:], runs[1:2]):
        drawn(*shown, out=tmp_path / "r.html")
        sound(browser.open((tmp_path / "r.html").as_uri()))


@headless.needed
def test_tables_are_sorted_by_the_keyboard(browser, make_run, tmp_path):
    """Steps with marks as numbers, and what is missing last."""
    steps, values = (200, 3000, 1200), (0.7, None, 0.8)
    runs = [measured(make_run(n, k=k), 0, v, step=s) for n, k, v, s in zip("abc", (2, 3, 4), values, steps)]
    drawn(*runs, out=tmp_path / "r.html")
    orders, names = [], []

    def press(call):
        for head in ("k-NN", "step"):
            find = f"[...document.querySelectorAll('th button')].find((b) => b.textContent === '{head}')"
            browser.evaluate(f"{find}.focus(), 0")
            for _ in range(2):
                for kind in ("keyDown", "keyUp"):
                    enter = {"key": "Enter", "code": "Enter", "text": "\r", "windowsVirtualKeyCode": 13}
                    call("Input.dispatchKeyEvent", type=kind, **enter)
                rows = "[...document.querySelector('table').tBodies[0].rows]"
                orders.append(browser.evaluate(f"{rows}.map((row) => row.cells[0].textContent).join('')"))
        call("Accessibility.enable")
        shown = (n for n in call("Accessibility.getFullAXTree")["nodes"] if not n["ignored"])
        names.extend((n["role"]["value"], n.get("name", {}).get("value", "")) for n in shown)

    sound(browser.open((tmp_path / "r.html").as_uri(), act=press))
    assert orders == ["acb", "cab", "bca", "acb"]
    assert {"main", "navigation", "banner"} <= {role for role, _ in names}
    assert ("button", "k-NN") in names  # without its arrow
    named = ("image", "region", "table", "button", "link", "heading")
    assert all(name for role, name in names if role in named)
