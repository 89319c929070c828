"""Build the API reference from the docstrings with pdoc; each warning is an error.

python tests/support/api_reference.py FOLDER
"""

import importlib
import sys
import warnings
from pathlib import Path

import pdoc

PAGES = ("dma", "memory", "session", "report", "errors", "types", "doca", "doctor", "widgets")
PAGES += ("jupyter", "agent", "wire", "gpu_initiated")


def resolve(name: str) -> None:
    """Import a package and load its lazy names, since pdoc sees only names already loaded."""
    module = importlib.import_module(name)
    for public in getattr(module, "__all__", ()):
        setattr(module, public, getattr(module, public))


def main(folder: str) -> None:
    """Write one HTML page for each package."""
    warnings.simplefilter("error")
    # Classes to type checkers, functions at run time before Python 3.13: `|` is not defined. The
    # structures of the C core exist in the stub only.
    unknown = r"Error parsing type annotation (threading\.Lock|select\.poll|core\.\w+) \| None"
    warnings.filterwarnings("ignore", message=unknown)
    names = ["dgkit", *(f"dgkit.{page}" for page in PAGES)]
    for name in names:
        resolve(name)
    pdoc.render.configure(docformat="google")
    pdoc.pdoc(*names, output_directory=Path(folder))


if __name__ == "__main__":
    main(sys.argv[1])
