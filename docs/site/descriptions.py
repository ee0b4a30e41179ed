"""The description of a page for search engines: its first paragraph."""

import html

from docutils import nodes


def describe(app, pagename: str, templatename: str, context: dict, doctree: nodes.document | None) -> None:
    paragraph = next(doctree.findall(nodes.paragraph), None) if doctree else None
    if paragraph is not None:
        text = html.escape(" ".join(paragraph.astext().split())[:300])
        context["metatags"] = f'{context.get("metatags", "")}<meta name="description" content="{text}">'


def setup(app):
    app.connect("html-page-context", describe)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
