"""The options of a hex view: which source of the bytes, and how they are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .clipboard import DTYPES
from .fetch import SOURCES, why_no_dpu, why_no_host

if TYPE_CHECKING:
    from ...session import SessionRegion

_CHOICES: dict[str, tuple[Any, ...]] = {
    "source": (*SOURCES,), "dtype": ("hex", *DTYPES), "endian": ("little", "big"),
    "columns": (0, 8, 16, 32, 64), "overview_of": ("value", "entropy"),
}  # fmt: skip


class Options:
    """Values of the view's options by name; at first, the first choice of each."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {name: choices[0] for name, choices in _CHOICES.items()}

    def __getitem__(self, name: str) -> Any:
        """Return the value of an option."""
        return self.values[name]

    def change(self, options: dict[str, Any]) -> None:
        """Change options, all or none.

        Raises:
            ValueError: An option or its value is unknown.
        """
        for name, value in options.items():
            if name not in _CHOICES:
                raise ValueError(f"the hex view has no option {name!r}")
            if isinstance(value, bool) or value not in _CHOICES[name]:
                known = ", ".join(str(choice) for choice in _CHOICES[name])
                raise ValueError(f"{name} is {value!r}; it must be one of: {known}")
        self.values.update(options)

    def source(self, region: SessionRegion | None) -> str:
        """Return the chosen source, or the only one that the region has."""
        if region is not None and why_no_host(region):
            return "dpu"
        return "host" if region is not None and why_no_dpu(region) else str(self["source"])

    def sources(self, region: SessionRegion | None) -> tuple[str, ...]:
        """Return the sources of the bytes shown: `dpu`, `host`, or both."""
        return SOURCES[self.source(region)]

    def check_source(self, region: SessionRegion | None, value: Any) -> None:
        """Raise ValueError, with the reason, if the region lacks a source."""
        if region is None or value == self.source(region) or value not in SOURCES:
            return
        why = "" if value == "dpu" else why_no_host(region)
        if why := why or ("" if value == "host" else why_no_dpu(region)):
            raise ValueError(why)
