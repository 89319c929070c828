# SPDX-License-Identifier: Apache-2.0
"""A Jupyter server extension: TCP_NODELAY on the websocket between the page and a kernel.

Without it a small reply waits until the page has acknowledged the previous one (Nagle's algorithm
and delayed acknowledgements, RFC 896 and RFC 1122): about 40 ms, which delays each step of
scrolling in a hex view. dgkit.json, installed with the package, enables the extension: `jupyter
server extension list` lists it, `jupyter server extension disable dgkit.jupyter.tcp_nodelay`
disables it.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

_MARK = "_dgkit_nodelay"


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "dgkit.jupyter.tcp_nodelay"}]


def _load_jupyter_server_extension(server: Any) -> None:
    """Enable the option; called by the server at start, which continues even if this fails."""
    try:
        from jupyter_server.services.kernels.websocket import KernelWebsocketHandler
    except ImportError as exc:
        server.log.info(
            "dgkit: TCP_NODELAY is not set: this server has no kernel websocket handler: %s", exc
        )
        return
    missing = enable(KernelWebsocketHandler, server.log)
    if missing:
        server.log.info(
            "dgkit: TCP_NODELAY is not set: the server's kernel websocket handler %s", missing
        )
    else:
        server.log.debug("dgkit: TCP_NODELAY is set on kernel websockets")


def enable(handler: Any, log: Any) -> str:
    """Make every websocket of `handler` or of a subclass that calls its open() set the option.

    Idempotent.

    Args:
        handler: A tornado WebSocketHandler class.
        log: The server's logger.

    Returns:
        "" on success, else what the handler lacks; the handler is then unchanged.
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
        except Exception as exc:  # the websocket also works without the option
            log.debug("dgkit: TCP_NODELAY could not be set: %r", exc)
        return await opens(self, *args, **kwargs)

    setattr(open_without_delay, _MARK, True)
    handler.open = open_without_delay
    return ""
