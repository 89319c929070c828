"""A Jupyter server extension: TCP_NODELAY on the websocket between the page and a kernel.

Without it a small answer waits for the page to acknowledge the one before it (Nagle's algorithm
and delayed acknowledgements, RFC 896 and RFC 1122): some 40 ms, of which a hex view that is
scrolled sees each. dgkit.json, which the package installs beside the other extensions' files,
enables it: `jupyter server extension list` shows it, `jupyter server extension disable
dgkit.jupyter.tcp_nodelay` ends that.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

__all__ = ["enable"]

_MARK = "_dgkit_nodelay"


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "dgkit.jupyter.tcp_nodelay"}]


def _load_jupyter_server_extension(server: Any) -> None:
    """What a server calls when it starts. It goes on whatever happens here."""
    try:
        from jupyter_server.services.kernels.websocket import KernelWebsocketHandler
    except ImportError as exc:
        server.log.info("dgkit: TCP_NODELAY is not set, this server has no such websocket: %s", exc)
        return
    missing = enable(KernelWebsocketHandler, server.log)
    if missing:
        server.log.info("dgkit: TCP_NODELAY is not set, this server's websocket %s", missing)
    else:
        server.log.debug("dgkit: TCP_NODELAY is set on kernel websockets")


def enable(handler: Any, log: Any) -> str:
    """Makes each websocket that `handler` (a tornado WebSocketHandler class) opens set the option.

    Also those of its subclasses that open as it does. Again: nothing. It returns what `handler`
    lacks, and has changed nothing then; empty if all is well.
    """
    opens = vars(handler).get("open")
    if getattr(opens, _MARK, False):
        return ""
    if not inspect.iscoroutinefunction(opens):
        return "does not open as expected"
    if not callable(getattr(handler, "set_nodelay", None)):
        return "has no set_nodelay()"

    @functools.wraps(opens)
    async def open_without_delay(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            self.set_nodelay(True)
        except Exception as exc:  # a page without the option is better than none
            log.debug("dgkit: TCP_NODELAY could not be set: %r", exc)
        return await opens(self, *args, **kwargs)

    setattr(open_without_delay, _MARK, True)
    handler.open = open_without_delay
    return ""
