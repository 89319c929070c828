"""dgkit in Jupyter: the magics of `%load_ext dgkit`, and an extension of the Jupyter server.

magics       %dma and %%dma
grammar      parser of a line: tokens, commands, options, help
arguments    regions, numbers and bytes that a line refers to
completer    tab completion
display      results: bytes read, open sessions, help; progress bar
tcp_nodelay  server extension: TCP_NODELAY on kernel websockets
lab_server   JupyterLab as a child process of `dgkit lab`
"""

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .magics import load_ipython_extension as load_ipython_extension
    from .magics import unload_ipython_extension as unload_ipython_extension

_MODULES = {"load_ipython_extension": "magics", "unload_ipython_extension": "magics"}

__all__ = ["load_ipython_extension", "unload_ipython_extension"]


def __getattr__(name: str) -> object:
    """Import on first use: the server extension needs no IPython, the magics need no server."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
