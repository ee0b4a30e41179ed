"""The built site: every public name has a place with its source, every link a target, and nothing needs a network."""

import importlib
import inspect
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

import pytest
from sphinx.util.inventory import InventoryFile

from docs.site import reference

pytestmark = pytest.mark.slow


class Links(HTMLParser):
    """The ids of a page, what it links to and what it loads."""

    def __init__(self):
        super().__init__()
        self.ids, self.links, self.loads, self.untold = set(), [], [], []

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
def pages(site) -> dict[Path, Links]:
    """Every page, read."""
    found = {}
    for file in sorted(site.rglob("*.html")):
        found[file] = Links()
        found[file].feed(file.read_text(encoding="utf-8"))
    return found


def names() -> dict[str, object]:
    """Every public name of mvcl, with its value."""
    found = {}
    for package in reference.PACKAGES:
        module = importlib.import_module(f"mvcl.{package}")
        found |= {f"mvcl.{package}.{name}": getattr(module, name) for name in reference.public(package)}
    return found


def test_every_public_name_is_in_the_reference(site):
    inventory = InventoryFile.loads((site / "objects.inv").read_bytes(), uri="").data
    objects = {
        name: item.uri
        for kind, items in inventory.items()
        if kind.startswith("py:")
        for name, item in items.items()
    }
    missing = sorted(set(names()) - set(objects))
    assert not missing, "name them in docs/reference/PACKAGE.md"
    assert all(uri.startswith("reference/") for uri in objects.values())


def test_functions_and_classes_link_to_their_source(pages):
    linked = {link.partition("_modules/")[2] for page in pages.values() for link in page.links}
    sources = {
        name: f"{value.__module__.replace('.', '/')}.html#{value.__name__}"
        for name, value in names().items()
        if (inspect.isfunction(value) or inspect.isclass(value)) and value.__module__.startswith("mvcl.")
    }
    assert len(sources) > 300
    assert not [name for name, source in sources.items() if source not in linked]


def test_no_link_leads_nowhere(site, pages):
    dead = []
    for file, page in pages.items():
        for link in page.links + page.loads:
            if urlsplit(link).scheme in ("http", "https", "mailto", "data"):
                continue
            path, anchor = urldefrag(link)
            target = (file.parent / unquote(urlsplit(path).path)).resolve() if path else file
            if not target.exists() or (
                anchor and target in pages and unquote(anchor) not in pages[target].ids
            ):
                dead.append(f"{file.relative_to(site)}: {link}")
    assert not dead


def test_nothing_is_loaded_from_elsewhere(pages):
    assert not [load for page in pages.values() for load in page.loads if urlsplit(load).netloc]


def test_pages_have_titles_descriptions_and_pictures_a_text(site, pages):
    generated = {"genindex.html", "search.html"}
    for file, page in pages.items():
        text = file.read_text(encoding="utf-8")
        title = re.search(r"<title>(.*?)</title>", text, re.DOTALL)[1]
        assert title.strip() not in ("", "mvcl", "&lt;no title&gt; - mvcl") or file.parent == site, file
        relative = file.relative_to(site)
        if relative.parts[0] in ("_modules", "source") or str(relative) in generated:
            continue
        assert re.search(r'<meta [^>]*name="description"', text), f"{relative} has no description"
        assert not page.untold, relative
