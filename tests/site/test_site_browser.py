"""Every page of the site in headless Chromium: no console errors, no requests to elsewhere, no horizontal scrolling."""

import headless
import pytest

pytestmark = headless.NEEDED

SHOWN = """(() => {
  const flat = [...document.images].filter(i => getComputedStyle(i).display !== 'none' && i.loading !== 'lazy'
    && !(i.complete && i.naturalWidth > 0 && i.naturalHeight > 0)).map(i => i.src);
  return {
    flat,
    wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    page: getComputedStyle(document.body).backgroundColor,
  };
})()"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with headless.chromium(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


def test_pages(browser, site):
    """All pages but those of code, of which there are some."""
    pages = [
        page
        for page in sorted(site.rglob("*.html"))
        if page.relative_to(site).parts[0] not in ("_modules", "source")
    ]
    pages += [next(site.glob("_modules/mvcl/losses/*.html")), next(site.rglob("source/configs/*.html"))]
    assert len(pages) > 50
    wrong = {}
    for page in pages:
        seen = browser.open(page.as_uri(), measure=SHOWN)
        elsewhere = [address for address in seen.requests if not address.startswith(site.as_uri())]
        looks = (seen.light, seen.phone, seen.dark)
        ours = {
            "errors": seen.errors,
            "requests": elsewhere,
            "pictures": [picture for look in looks for picture in look["flat"]],
            "wide": [look["wide"] for look in looks if look["wide"] > 0],
            "themes": [] if seen.light["page"] != seen.dark["page"] else [seen.light["page"]],
        }
        if any(ours.values()):
            wrong[page.relative_to(site).as_posix()] = {name: found for name, found in ours.items() if found}
    assert not wrong


def test_search_finds_an_objective(browser, site):
    found = []

    def wait(call):
        browser.drain(3)
        found.append(browser.evaluate("document.querySelectorAll('#search-results li').length"))
        found.append(browser.evaluate("document.querySelector('#search-results').textContent"))

    browser.open(f"{(site / 'search.html').as_uri()}?q=mv_dhel", act=wait, measure=SHOWN)
    assert found[0] > 0
    assert "mv_dhel" in found[1]
