"""Files that a browser sends in chunks. Bounded in size and in number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...units import size_text

__all__ = ["CHUNK", "MOST", "Uploads"]

MOST = 16 << 20  # bytes of a file
CHUNK = 1 << 20  # bytes of a message
_KEPT = 4  # files: one a view, for a few views


@dataclass(slots=True)
class _Upload:
    name: str
    size: int
    data: bytearray = field(default_factory=bytearray)


class Uploads:
    """By a key that the view chooses."""

    def __init__(self) -> None:
        self._files: dict[str, _Upload] = {}

    def take(self, key: str, name: str, size: int, at: int, chunks: Sequence[memoryview]) -> int:
        """Adds a chunk that begins at `at`; how many bytes there are now. ValueError."""
        if not isinstance(size, int) or not 0 < size <= MOST:
            raise ValueError(f"{name!r} has {size} bytes; 1 byte to {size_text(MOST)} can be sent")
        if at == 0:
            self._files.pop(key, None)
            while len(self._files) >= _KEPT:
                del self._files[next(iter(self._files))]
            self._files[key] = _Upload(name, size)
        file = self._files.get(key)
        if file is None or file.size != size or at != len(file.data):
            raise ValueError(f"a piece of {name!r} is missing: choose the file again")
        for chunk in chunks:
            if len(file.data) + chunk.nbytes > size:
                raise ValueError(f"{name!r} sends more than its {size} bytes: choose it again")
            file.data += chunk
        return len(file.data)

    def whole(self, key: str) -> tuple[str, bytes]:
        """The name and the bytes of a file. ValueError: it is not here, or not all of it."""
        file = self._files.get(key)
        if file is None:
            raise ValueError("no file was chosen, or it was sent too long ago: choose it again")
        if len(file.data) != file.size:
            raise ValueError(f"{file.name!r} is still being sent: {len(file.data)} of {file.size}")
        return file.name, bytes(file.data)
