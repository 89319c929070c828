# SPDX-License-Identifier: Apache-2.0
"""The way dgkit was installed, and the command that adds an extra to it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import NoReturn
from urllib.parse import unquote, urlsplit

from ._version import DISTRIBUTION


def checkout() -> Path | None:
    """Return the folder that dgkit was installed from, if it is still there.

    pip records it in direct_url.json (PEP 610); a wheel or an index leaves no folder.
    """
    from importlib import metadata

    try:
        text = metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
        parts = urlsplit(json.loads(text or "{}").get("url", ""))
        folder = Path(unquote(parts.path))
        there = parts.scheme == "file" and (folder / "pyproject.toml").is_file()
    except (metadata.PackageNotFoundError, OSError, ValueError):  # or a folder that is not readable
        return None
    return folder if there else None


def install_command(extra: str) -> str:
    """Return the command that installs dgkit with an extra: from its checkout, else by name."""
    return f"pip install {shlex.quote(f'{checkout() or DISTRIBUTION}[{extra}]')}"


class NeedsExtra:
    """A public name whose packages are not installed: to call it, or to use a part, says so.

    So help(), completion and inspect work without the extras.

    Args:
        name: The name in dgkit.
        package: The missing package.
        extra: The extra of dgkit that installs it.
    """

    def __init__(self, name: str, package: str, extra: str) -> None:
        self._name, self._package = name, package
        self.__doc__ = (
            f"dgkit.{name} needs {package}, which is not installed: `{install_command(extra)}`"
        )

    def __call__(self, *_: object, **__: object) -> NoReturn:
        """Raise ImportError: the packages are missing."""
        raise ImportError(self.__doc__, name=self._package)

    def __getattr__(self, name: str) -> NoReturn:
        dunder = name.startswith("__")  # asked by inspect, copy, pickle
        raise AttributeError(f"no {name}" if dunder else self.__doc__, name=name, obj=self)

    def __repr__(self) -> str:
        return f"<{self.__doc__}>"
