"""Settings of the documentation site; `make docs` builds it, with warnings as errors.

The pages are those that read well in the repository, so what they link to outside of docs/ becomes its path here.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from inspect import isroutine
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

import graft

ROOT = Path(__file__).parents[1]

project = "Graft"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = "Graft"
exclude_patterns = ["conf.py"]
html_show_copyright = False
myst_heading_anchors = 4  # links lead to headings, as they do in the repository
nitpicky = False  # signatures name types of other packages
default_role = "code"  # docstrings have single backticks around code
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True


def inside_only(app: Sphinx, name: str, source: list[str]) -> None:
    """Write links to files outside of docs/ as their paths in the repository; they must exist."""

    def path(link: re.Match[str]) -> str:
        target = (Path(app.srcdir) / name).parent.joinpath(link[1]).resolve()
        if not target.exists():
            raise ExtensionError(f"docs/{name}.md links to '{link[1]}', which does not exist")
        return f"`{target.relative_to(ROOT)}`" if not target.is_relative_to(app.srcdir) else link[0]

    source[0] = re.sub(r"\[[^\]]*\]\((\.\./[^)#]+)[^)]*\)", path, source[0])


def with_public_names(app: Sphinx, name: str, source: list[str]) -> None:
    """Write the entries of a module's public names in the place of the comment that names the module."""

    def entries(marker: re.Match[str]) -> str:
        module = importlib.import_module(marker[1])
        return "\n".join(entry(marker[1], public, getattr(module, public)) for public in sorted(module.__all__))

    source[0] = re.sub(r"<!-- public names: ([\w.]+) -->", entries, source[0])


def entry(module: str, public: str, value: object) -> str:
    """Return the section of one public name."""
    if isinstance(value, type):
        kind, options = "autoclass", "\n   :members:\n   :show-inheritance:"
    elif isroutine(value):
        kind, options = "autofunction", ""
    elif isinstance(value, Mapping):  # whose own docstring is that of any mapping
        kind, options = "py:data", f"\n\n   A mapping of {len(value)} names: {', '.join(map(str, value))}."
    else:
        kind, options = "autodata", "\n   :no-value:"
    if module != "graft" and getattr(graft, public, None) is value:
        options += "\n   :no-index:"  # links lead to the page of `graft`
    return f"## {public}\n\n```{{eval-rst}}\n.. {kind}:: {module}.{public}{options}\n```\n"


def setup(app: Sphinx) -> None:
    """Register the hooks of the sources."""
    app.connect("source-read", inside_only)
    app.connect("source-read", with_public_names)
