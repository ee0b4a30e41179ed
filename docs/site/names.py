"""Links from names in code to their place in the reference: `mv_dhel`, `losses.mv_dhel`, `SinkhornOutput.gap`."""

import re

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.nodes import make_refnode

from mvcl import losses

NAME = re.compile(r"(?:mvcl\.)?([A-Za-z_][\w.]*)(?:\(\))?")


def index(objects: dict) -> dict[str, str]:
    """Full names by what they may be written as.

    What could be two things is left out, and so are single plain words, such as `train`, that are no objective.
    """
    found: dict[str, set[str]] = {}
    for full, entry in objects.items():
        if entry.objtype == "module":
            continue
        parts = full.split(".")
        attribute = entry.objtype in ("attribute", "method", "property")
        for length in range(2 if attribute else 1, len(parts)):
            found.setdefault(".".join(parts[-length:]), set()).add(full)
    kept = {short: full.pop() for short, full in found.items() if len(full) == 1}
    known = losses.objectives()
    return {s: full for s, full in kept.items() if s in known or not re.fullmatch("[a-z]+", s)}


class Names(SphinxPostTransform):
    """Wraps a literal that is the name of one public object in a link to it."""

    default_priority = 700
    formats = ("html",)

    def run(self, **kwargs) -> None:
        for text in list(self.document.findall(nodes.Text)):
            if text == " -- ":  # what Sphinx puts between a parameter and its text
                text.parent.replace(text, nodes.Text(" – "))
        if self.env.docname == "reference/command":  # its words are choices and splits
            return
        domain = self.env.domains["py"]
        if not hasattr(self.env, "_mvcl_names"):
            self.env._mvcl_names = index(domain.objects)
        known, here = self.env._mvcl_names, self.env.docname
        for literal in list(self.document.findall(nodes.literal)):
            written = NAME.fullmatch(literal.astext())
            full = known.get(written[1]) if written else None
            if full is None or skipped(literal, written[1]):
                continue
            place = domain.objects[full]
            uri = make_refnode(self.app.builder, here, place.docname, place.node_id, literal.deepcopy(), full)
            literal.replace_self(uri)


def skipped(literal: nodes.Node, name: str) -> bool:
    """In headings and links, and where a parameter of the function has that name."""
    parent = literal.parent
    while parent is not None:
        if isinstance(parent, nodes.title | nodes.reference | nodes.term):
            return True
        if parent.get("objtype") in ("function", "method", "class"):
            signature = parent[0].astext()
            if re.search(rf"\b{re.escape(name)}\b", signature):
                return True
        parent = parent.parent
    return False


def setup(app):
    app.add_post_transform(Names)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
