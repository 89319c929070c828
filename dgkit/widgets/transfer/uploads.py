"""Files received from the browser in chunks, bounded in size and number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...units import size_text

MAX_FILE = 16 << 20  # bytes
CHUNK = 1 << 20  # bytes of a message
_MAX_FILES = 4  # kept; each view uses a single key


@dataclass(slots=True)
class _Upload:
    name: str
    size: int
    data: bytearray = field(default_factory=bytearray)


class Uploads:
    """Received files, by a key that the view chooses."""

    def __init__(self) -> None:
        self._files: dict[str, _Upload] = {}

    def add(self, key: str, name: str, size: int, at: int, chunks: Sequence[memoryview]) -> int:
        """Append a chunk to a file.

        Args:
            key: Key of the file; a chunk at offset 0 restarts the file.
            name: Name of the file, for error texts.
            size: Size of the whole file in bytes.
            at: Offset of the chunk in bytes.
            chunks: The bytes.

        Returns:
            The number of bytes received so far.

        Raises:
            ValueError: The file is empty or too large, or the chunk does not continue it.
        """
        if not isinstance(size, int) or not 0 < size <= MAX_FILE:
            raise ValueError(
                f"{name!r} has {size} bytes; a file must have 1 byte to {size_text(MAX_FILE)}"
            )
        if at == 0:
            self._files.pop(key, None)
            while len(self._files) >= _MAX_FILES:
                del self._files[next(iter(self._files))]
            self._files[key] = _Upload(name, size)
        file = self._files.get(key)
        if file is None or file.size != size or at != len(file.data):
            raise ValueError(f"a chunk of {name!r} is missing: choose the file again")
        for chunk in chunks:
            if len(file.data) + chunk.nbytes > size:
                raise ValueError(
                    f"{name!r} has more than its {size:,} bytes: choose the file again"
                )
            file.data += chunk
        return len(file.data)

    def get(self, key: str) -> tuple[str, bytes]:
        """Return the name and the bytes of a file.

        Raises:
            ValueError: The file is unknown or incomplete.
        """
        file = self._files.get(key)
        if file is None:
            raise ValueError(
                "no file was chosen, or it was dropped for newer ones: choose it again"
            )
        if len(file.data) != file.size:
            raise ValueError(
                f"{file.name!r} is still being sent: {len(file.data):,} of {file.size:,} bytes"
            )
        return file.name, bytes(file.data)
