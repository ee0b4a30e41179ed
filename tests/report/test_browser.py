"""The page in headless Chromium: no console errors, no requests, all images drawn, no horizontal scrolling."""

import json

import headless
import pytest

from mvcl.report import write_report

pytestmark = headless.NEEDED


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with headless.chromium(tmp_path_factory.mktemp("profile")) as browser:
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


def test_marked_steps_are_sorted_as_numbers_and_what_is_missing_is_last(browser, make_run, tmp_path):
    steps = {"a": 200, "b": 3000, "c": 1200, "d": 1200, "e": 400}
    runs = [make_run(name, k=k) for k, name in enumerate(steps, 2)]
    for run, step in zip(runs, steps.values()):
        content = json.loads((run / "evaluation.json").read_text())
        content["step"] = step
        content["rows"]["trained encoder"][0]["value"] = None if run.name == "b" else step / 3000
        (run / "evaluation.json").write_text(json.dumps(content))
    orders = []

    def press(call):
        for name, times in (("step", 2), ("k-NN", 2)):
            for _ in range(times):
                click = f"[...document.querySelectorAll('th button')].find((b) => b.textContent === '{name}').click()"
                browser.evaluate(f"{click}, 0")
                rows = "[...document.querySelector('table').tBodies[0].rows]"
                orders.append(browser.evaluate(f"{rows}.map((row) => row.cells[0].textContent).join('')"))

    seen = browser.open(write_report(runs, tmp_path / "r.html").as_uri(), tmp_path, press)
    assert seen.errors == []
    assert [order.replace("d", "c") for order in orders] == ["bccea", "aeccb", "cceab", "aeccb"]


def _key(call, key, code, text=None):
    for kind in ("keyDown", "keyUp"):
        more = {} if text is None else {"text": text}
        call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **more)


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
