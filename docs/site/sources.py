"""What pages link to: files of the repository become pages of highlighted code, wide drawings open alone."""

from pathlib import Path
from posixpath import relpath

from docutils import nodes
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_for_filename
from sphinx import addnodes
from sphinx.transforms import SphinxTransform

ROOT = Path(__file__).parents[2]
FOLDER = "source"


class Sources(SphinxTransform):
    """Links to files outside docs become links to their pages."""

    default_priority = 450  # before images and downloads are collected

    def apply(self, **kwargs) -> None:
        env = self.env
        for node in list(self.document.findall(addnodes.download_reference)):
            path = Path(env.relfn2path(node["reftarget"], env.docname)[1]).resolve()
            if not path.is_relative_to(ROOT) or path.is_relative_to(ROOT / "docs"):
                continue
            name = f"{FOLDER}/{path.relative_to(ROOT).as_posix()}"
            env.metadata[env.docname].setdefault("sources", "")
            env.metadata[env.docname]["sources"] += f"{path.relative_to(ROOT).as_posix()}\n"
            uri = f"{relpath(name, Path(env.docname).parent.as_posix())}.html"
            node.replace_self(nodes.reference("", "", *node.children, refuri=uri, internal=True))


def pages(app):
    """A page for each file that some page links to."""
    files = {f for data in app.env.metadata.values() for f in data.get("sources", "").split()}
    for file in sorted(files):
        text = (ROOT / file).read_text(encoding="utf-8")
        code = highlight(text, get_lexer_for_filename(file), HtmlFormatter(cssclass="highlight"))
        yield f"{FOLDER}/{file}", {"title": file, "body": f"<h1>{file}</h1>\n{code}"}, "page.html"


def forget_without_source(app) -> list:
    """Leaves modules without Python source, such as builtins, out of the list of modules, which would link to them."""
    modules = getattr(app.env, "_viewcode_modules", {})
    for name in [name for name, entry in modules.items() if not entry]:
        del modules[name]
    return []


def enlarge(app, doctree: nodes.document) -> None:
    """Drawings fill the width of the page; Sphinx links pictures with a width to their file."""
    for image in doctree.findall(nodes.image):
        if image["uri"].endswith(".svg"):
            image.setdefault("width", "100%")


def setup(app):
    app.connect("doctree-read", enlarge)
    app.add_transform(Sources)
    app.connect("html-collect-pages", forget_without_source, priority=400)  # before viewcode's
    app.connect("html-collect-pages", lambda app: list(pages(app)))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
