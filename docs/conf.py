"""How Sphinx makes the site: ``make site`` writes it to ``build/site``, without a network."""

from __future__ import annotations

import sys
from pathlib import Path

import shardc

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

project = "shardc"
author = "the developers of shardc"
project_copyright = "the developers of shardc"
release = shardc.__version__
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "command_reference",
    "file_captions",
    "term_anchors",
]
html_theme = "furo"
html_title = "shardc"
html_show_copyright = False
html_static_path = ["static"]
html_css_files = ["tables.css"]
exclude_patterns = ["gpu_results.json"]

# Backticks in docstrings are names of the reference; others stay words. Annotations name types that have no page.
default_role = "py:obj"
nitpick_ignore_regex = [("py:.*", r"(?s).*")]
autodoc_member_order = "bysource"
add_module_names = False

myst_heading_anchors = 4
myst_enable_extensions = ["deflist", "attrs_inline"]
# Notebooks are run by the tests; the site shows their kept output.
nb_execution_mode = "off"
