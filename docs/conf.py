"""The site: `make docs` builds it into build/site, offline and with warnings as errors."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import mvcl  # noqa: E402

project = "mvcl"
author = "the mvcl authors"
release = version = mvcl.__version__
html_title = "mvcl"

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "docs.site",
]

# Notebooks are shown as they were executed.
nb_execution_mode = "off"
nb_ipywidgets_js = {}
myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath"]
suppress_warnings = ["myst.header"]  # pages made by commands skip levels: they are parts of a README too

# References that are not found are warnings, but for names of other packages, whose pages are not here.
nitpicky = True
nitpick_ignore_regex = [("py:.*", r"(?!mvcl\.).*|.*\._.*")]

napoleon_use_ivar = True
napoleon_use_rtype = False
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
add_module_names = False
toc_object_entries_show_parents = "hide"
highlight_language = "none"

html_math_renderer = "mathml"
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
smartquotes = False
copybutton_exclude = ".linenos, .gp, .go"
