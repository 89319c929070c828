"""dgkit in Jupyter: what `%load_ext dgkit` brings, and what a Jupyter server does for it.

magics.py     %dma and %%dma: what the commands do
grammar.py    what a line of them may say; words.py: a line in words
regions.py    which region and which bytes are meant
completion.py what Tab offers
shown.py      what is shown of bytes and of sessions; bar.py: how far it is
nodelay.py    the server extension
lab.py        JupyterLab as a child of `dgkit lab`
"""

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .magics import load_ipython_extension as load_ipython_extension
    from .magics import unload_ipython_extension as unload_ipython_extension

_HOME = {"load_ipython_extension": "magics", "unload_ipython_extension": "magics"}

__all__ = ["load_ipython_extension", "unload_ipython_extension"]


def __getattr__(name: str) -> object:
    """Imports late: the server extension needs no IPython, and the magics no server."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
