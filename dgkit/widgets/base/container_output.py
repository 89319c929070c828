"""Static pictures of the panels in an ipywidgets container: HBox, Tab, Output, interact.

A container displays its own view, and below it one picture of all open panels in it. A container
without panels is displayed as ipywidgets does.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from IPython.core.getipython import get_ipython
from ipywidgets import Box, Output
from ipywidgets.widgets import widget as registry

from ... import cell_lifetime
from .static_output import Pictured, StaticOutput

if TYPE_CHECKING:
    from .picture import Picture

_hooked: weakref.WeakSet[Any] = weakref.WeakSet()  # shells
_pictures: weakref.WeakKeyDictionary[Any, ContainerPicture] = weakref.WeakKeyDictionary()
_displayed: weakref.WeakKeyDictionary[Output, list[Pictured]] = weakref.WeakKeyDictionary()


class ContainerPicture:
    """The picture of a container's panels."""

    def __init__(self, container: Any) -> None:
        self._container = weakref.ref(container)
        self._run = cell_lifetime.current_run()
        self._static = StaticOutput(self._draw)

    def publish(self) -> None:
        """Publish it below the container that the running cell displays, if it has panels."""
        panels = list(_panels_in(self._container()))
        for panel in panels:
            panel.hosted_by(self)
        if panels:
            self._static.publish()

    def publish_late(self) -> None:
        """Publish it at the end of the cell if the panels came after the container's display."""
        if self._run == cell_lifetime.current_run() and not self._static.published:
            self.publish()

    def renew_picture(self, *, live: bool = False) -> None:
        """Replace the picture soon, as Panel.renew_picture(): the state of a panel has changed."""
        self._static.renew(live=live)

    def _draw(self) -> Picture:
        from .picture import Picture

        panels = list(_panels_in(self._container()))
        whole = Picture(", ".join(panel.title for panel in panels) or "no panel")
        for panel in panels:
            whole.add(panel.picture())
        return whole


def install() -> None:
    """Make the shell display containers with the pictures of their panels. Idempotent."""
    shell = get_ipython()
    if shell is None or shell in _hooked:
        return
    _hooked.add(shell)
    formatter = shell.display_formatter.ipython_display_formatter
    for kind in (Box, Output):
        formatter.for_type(kind, _display)


def note_displayed(panel: Pictured) -> bool:
    """Record that a panel is displayed; return whether an Output widget has captured that."""
    shell = get_ipython()
    try:
        message = shell.get_parent()["header"]["msg_id"]
    except (AttributeError, LookupError, TypeError):  # no kernel, or no message yet
        return False
    widgets = list(getattr(registry, "_instances", {}).values())
    captured = [one for one in widgets if isinstance(one, Output) and one.msg_id == message]
    for output in captured:
        panels = _displayed.setdefault(output, [])
        panels[:] = [*(other for other in panels if other is not panel), panel]
    return bool(captured)


def _display(container: Any) -> None:
    """Display a container and, below it, the picture of its panels."""
    from IPython.display import publish_display_data

    own = getattr(container, "_ipython_display_", None)
    if own is not None:
        own()
    else:
        bundle = container._repr_mimebundle_()
        data, *rest = bundle if isinstance(bundle, tuple) else (bundle,)
        if next(_panels_in(container), None) is not None:
            data = {**data, "text/plain": f"<{type(container).__name__}>"}  # without all its traits
        publish_display_data(data, rest[0] if rest else None)
    _pictures[container] = picture = ContainerPicture(container)
    picture.publish()
    cell_lifetime.after_each_cell(_publish_late)


def _publish_late(_result: object = None) -> None:
    """Publish the pictures of containers that the cell displayed before they had panels."""
    for picture in list(_pictures.values()):
        picture.publish_late()


def _panels_in(widget: Any) -> Iterator[Pictured]:
    """Iterate over the open panels in a widget, from the first to the last."""
    if isinstance(widget, Pictured):
        if not widget.closed:
            yield widget
    elif isinstance(widget, Box):
        for child in widget.children:
            yield from _panels_in(child)
    elif isinstance(widget, Output):
        yield from (panel for panel in _captured(widget) if not panel.closed)


def _captured(output: Output) -> list[Pictured]:
    """Return the panels that an Output shows; until a page reports them, the last displayed one."""
    panels = _displayed.get(output, [])
    view = "application/vnd.jupyter.widget-view+json"
    shown = {part.get("data", {}).get(view, {}).get("model_id") for part in output.outputs}
    return [panel for panel in panels if panel.model_id in shown] or panels[-1:]
