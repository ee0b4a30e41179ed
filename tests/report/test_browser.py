"""The page in headless Chromium: no console errors, no requests, all images drawn, no horizontal scrolling."""

import headless
import pytest

from mvcl.report import write_report, write_study

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
        assert look["flat"] == []
        assert (look["images"], look["plots"]) == (40, 7)
        assert look["wide"] <= 0
    assert seen.light["page"] != seen.dark["page"]


def test_the_geometry_of_a_run(browser, run, write_geometry, tmp_path):
    write_geometry(run)
    seen = browser.open(write_report([run], tmp_path / "r.html").as_uri(), tmp_path)
    assert seen.errors == []
    assert seen.requests == []
    for look in (seen.light, seen.phone, seen.dark):
        assert look["flat"] == []
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
        assert look["flat"] == []
        assert (look["images"], look["plots"]) == (1, 3)
        assert look["wide"] <= 0
    assert pressed == [[[4, 4]] * 4, [[4, 0], [4, 0], [4, 4], [4, 4]]]


def test_several_runs_and_hostile_names(browser, make_run, tmp_path):
    evil = "</script><script>alert(1)</script><img src=http://127.0.0.1:9/x onerror=alert(1)>"
    runs = [make_run("a"), make_run("b" * 80, k=8, epsilon=0.1), make_run("c", classes=(evil,) * 10)]
    for shown in (runs, runs[2:], runs[1:2]):
        seen = browser.open(write_report(shown, tmp_path / "r.html").as_uri())
        assert seen.errors == []
        assert seen.requests == []
        for look in (seen.light, seen.phone, seen.dark):
            assert look["flat"] == []
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
