"""The site: every public name has a place, every link a target, and nothing needs a network."""

import inspect
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

import headless
import pytest

from docs import site as generator

ROOT = Path(__file__).parents[2]


class Links(HTMLParser):
    """The ids of a page, what it links to and what it loads."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.loads, self.untold = set(), [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.ids |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        elif tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload"):
            self.loads.append(given["href"])
        elif given.get("src") and tag in ("img", "script", "source", "iframe"):
            self.loads.append(given["src"])
        if tag == "img" and not given.get("alt"):
            self.untold.append(given.get("src"))


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The folder of the site, built as `make docs` does."""
    folder = tmp_path_factory.mktemp("site")
    command = ["-m", "sphinx", "--builder", "html", "--fail-on-warning", "--keep-going", "--quiet"]
    out = subprocess.run(
        [sys.executable, *command, "--doctree-dir", folder / "doctrees", ROOT / "docs", folder / "html"],
        env=os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert out.returncode == 0, out.stderr
    return folder / "html"


@pytest.fixture(scope="module")
def pages(site) -> dict[Path, Links]:
    """Every page, read."""
    return {file: Links(file.read_text(encoding="utf-8")) for file in sorted(site.rglob("*.html"))}


@pytest.mark.parametrize("package", generator.PACKAGES)
def test_every_public_name_has_a_directive(package):
    page = (ROOT / "docs" / "reference" / f"{package}.md").read_text()
    text = generator.expanded(page)
    for name, value in generator.public(package).items():
        if not generator.home(package, name, value).startswith("mvcl."):
            continue
        kind = "class" if inspect.isclass(value) else "function" if inspect.isroutine(value) else "data"
        assert text.count(f".. auto{kind}:: {name}\n") == 1, name
    assert "{api}" not in text


def test_docstrings_keep_formulas_as_code_and_text_without_markup():
    lines = "A *sum* of `a_b`s |x|.\n\n    y = 2 * x_i\n\nThen `a\nb`.\n\nArgs:\n    x: a * b.".splitlines()
    generator.docstring(None, "function", "mvcl.losses.f", None, None, lines)
    assert lines == [
        "A \\*sum\\* of \\ ``a_b``\\ s \\|x\\|.", "", ".. code-block:: text", "", "    y = 2 * x_i", "",
        "Then \\ ``a b``\\ .", "", "Args:", "    x: a \\* b.",
    ]  # fmt: skip


def test_the_page_of_the_site_names_every_picture():
    docs = ROOT / "docs"
    text = (docs / "how_to" / "site.md").read_text()
    pictures = [file.relative_to(docs) for kind in ("png", "svg", "gif") for file in docs.rglob(f"*.{kind}")]
    assert pictures
    for picture in pictures:
        names = (picture.as_posix(), f"{picture.parent.as_posix()}/*{picture.suffix}")
        named = "_static" in picture.parts or any(f"`{name}`" in text for name in names)
        assert named, f"docs/how_to/site.md does not say what makes {picture}"


@pytest.mark.slow
def test_no_link_leads_nowhere_and_nothing_is_loaded_from_elsewhere(site, pages):
    dead = []
    for file, page in pages.items():
        assert not [load for load in page.loads if urlsplit(load).netloc], file
        assert not page.untold or "_modules" in file.parts, (file, page.untold)
        for link in page.links + page.loads:
            if urlsplit(link).scheme in ("http", "https", "mailto", "data"):
                continue
            path, anchor = urldefrag(link)
            target = (file.parent / unquote(urlsplit(path).path)).resolve() if path else file
            ids = pages[target].ids if target in pages else {unquote(anchor)}
            if not target.exists() or (anchor and unquote(anchor) not in ids):
                dead.append(f"{file.relative_to(site)}: {link}")
    assert not dead


SHOWN = """(() => ({
  flat: [...document.images].filter(i => getComputedStyle(i).display !== 'none' && i.loading !== 'lazy'
    && !(i.complete && i.naturalWidth > 0 && i.naturalHeight > 0)).map(i => i.src),
  wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
}))()"""


@headless.needed
def test_pages_in_a_browser(site, tmp_path):
    """No console errors, no requests to elsewhere, no horizontal scrolling; the search finds an objective."""
    files = [page for page in sorted(site.rglob("*.html")) if "_modules" not in page.parts]
    assert len(files) > 50
    wrong, found = {}, []
    with headless.chromium(tmp_path) as browser:
        for page in files:
            seen = browser.open(page.as_uri(), measure=SHOWN)
            elsewhere = [address for address in seen.requests if not address.startswith(site.as_uri())]
            looks = (seen.light, seen.phone, seen.dark)
            if seen.errors or elsewhere or any(look["flat"] or look["wide"] > 0 for look in looks):
                wrong[page.relative_to(site).as_posix()] = (seen.errors, elsewhere, looks)

        def wait(call):
            browser.drain(3)
            found.append(browser.evaluate("document.querySelector('#search-results').textContent"))

        browser.open(f"{(site / 'search.html').as_uri()}?q=mv_dhel", act=wait, measure=SHOWN)
    assert not wrong
    assert re.search("mv_dhel", found[0])
