"""Sphinx configuration; `make docs` builds with it."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import reference  # noqa: E402

from penstock import __version__  # noqa: E402

project = "Penstock"
copyright = "the Penstock contributors"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax", "sphinx.ext.napoleon"]
myst_enable_extensions = ["dollarmath"]
exclude_patterns = ["generated"]
html_theme = "furo"
html_title = "Penstock"

myst_heading_anchors = 3
autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_google_docstring = False
napoleon_use_rtype = False

# The list of strategies comes from the registry at every build, so it cannot drift.
reference.write_strategies()
