# SPDX-License-Identifier: Apache-2.0
"""Plugin of `panel serve`: anywidget's JavaScript comes from its wheel, without the Internet.

    panel serve page.py --plugins dgkit.jupyter.panel_routes

ipywidgets_bokeh fetches the modules of widgets from its `cdn`. This plugin makes it a route of the
server, which has anywidget's module and redirects requests for other packages to the CDN.
"""

from __future__ import annotations

import functools
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ipywidgets_bokeh.widget import IPyWidget
from tornado.web import RequestHandler

_CDN: str = IPyWidget.lookup("cdn").property._default
_ROUTE = "dgkit/modules"


class _Modules(RequestHandler):  # type: ignore[misc]
    def get(self, path: str) -> None:
        """Send the module of `anywidget@VERSION/dist/index`; redirect for other packages."""
        spec = find_spec("anywidget")
        if not path.startswith("anywidget@") or spec is None or spec.origin is None:
            self.redirect(f"{_CDN}/{path}")
            return
        self.set_header("Content-Type", "text/javascript")
        self.write((Path(spec.origin).parent / "nbextension/index.js").read_bytes())


def _with_route(create: Any) -> Any:
    """Return IPyWidget's constructor with another CDN; Bokeh does not send a changed default."""

    @functools.wraps(create)
    def init(self: Any, **values: Any) -> None:
        create(self, **{"cdn": _ROUTE, **values})

    return init


IPyWidget.__init__ = _with_route(IPyWidget.__init__)
ROUTES = [(f"/{_ROUTE}/(.*)", _Modules)]
