# SPDX-License-Identifier: Apache-2.0
"""Sphinx's settings. build.py makes the folder of sources that they are for."""

from importlib import import_module

project = "dgkit"
author = "dgkit's developers"
version = release = import_module("dgkit").__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
myst_enable_extensions = ["attrs_inline", "colon_fence"]
myst_heading_anchors = 4
# Notebooks may begin with a heading of any level; "op" is an attribute of several classes.
suppress_warnings = ["myst.header", "ref.python"]

# The tutorials come with the outputs of a real run. A panel's static picture is its HTML output;
# the live panel would need a kernel.
nb_execution_mode = "off"
nb_mime_priority_overrides = [
    ("html", "application/vnd.jupyter.widget-view+json", None),
    ("html", "text/html", 0),
]
nb_merge_streams = True

highlight_language = "none"  # of code without a language, such as a diagram
smartquotes = False  # `--` in a sentence is an option of a command

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True}
napoleon_numpy_docstring = False
napoleon_use_ivar = True

html_theme = "pydata_sphinx_theme"
html_title = "dgkit"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = [("search.js", {"defer": "defer"})]  # search.html loads Sphinx's search before
html_show_sourcelink = False
html_copy_source = False
_ALONE = (
    "arm-gpu-memory",
    "errors",
    "c-api",
    "support",
    "questions",
    "where",
    "demo",
    "chapters/readme",
    "chapters/security",
    "glossary",
    "related",
    "install",
)
html_sidebars = {page: [] for page in _ALONE}
html_theme_options = {
    "logo": {"text": "dgkit"},
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "header_links_before_dropdown": 7,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}
copyright = f"{author}. Apache-2.0"
