# SPDX-License-Identifier: Apache-2.0
"""Hex view of a region.

hexview         the panel: requests of its views and calls from a cell
selection       what the panel shows: region, position, selected bytes, options; copies as text
fetch           bytes as the DPU reads them and as the host sees them
view_pages      the pages in view, read again while live viewing is on, and what changed
search          the one running search of a panel, chunk by chunk
matchers        what it looks for in a chunk: a pattern, a value, a difference
region_scan     scans of the region, for overview and image
overview        mean value, entropy and changes of each part of the region
image           a pixel per item of the region
structure       structures laid over the bytes: fields of ctypes classes, dtypes and dicts, values
edit            edits as DMA writes; undo and redo
time_machine    the bytes as they were at each of the last writes, and who wrote them
write_history   the bytes of a region before and after each of its last writes

JavaScript: values (numbers), grid (rows), keys (cursor), tools (controls), overview (the strip),
image, structure (fields), time_machine, jumps (going back), box (pages), hexview.
"""

from .hexview import HexView

__all__ = ["HexView"]
