"""Links from names in code to their place in the reference: `mv_dhel`, `losses.mv_dhel`, `SinkhornOutput.gap`."""

import re

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.nodes import make_refnode

NAME = re.compile(r"(?:mvcl\.)?([A-Za-z_][\w.]*)(?:\(\))?")


def index(objects: dict) -> dict[str, str]:
    """Full names by what they may be written as; what could be two things is left out."""
    found: dict[str, set[str]] = {}
    for full, entry in objects.items():
        if entry.objtype == "module":
            continue
        parts = full.split(".")
        attribute = entry.objtype in ("attribute", "method", "property")
        for length in range(2 if attribute else 1, len(parts)):
            found.setdefault(".".join(parts[-length:]), set()).add(full)
    return {short: full.pop() for short, full in found.items() if len(full) == 1}


class Names(SphinxPostTransform):
    """Wraps a literal that is the name of one public object in a link to it."""

    default_priority = 700
    formats = ("html",)

    def run(self, **kwargs) -> None:
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
