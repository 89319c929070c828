"""Hex view of a region.

hexview         the panel: requests of its views and calls from a cell
selection       the region that the panel shows, and the position in it
view_options    source, type, byte order and columns
value           the bytes of the selection
static_view     picture and HTML without a kernel
fetch           bytes as the DPU reads them and as the host sees them
live_view       pages of the views, read again while live viewing is on
change_tracker  bytes that changed since they were first shown
search          search for a pattern or a difference, chunk by chunk
search_task     the one running search of a panel
region_scan     scans of the region, for overview and image
overview        mean value, entropy and changes of each part of the region
image           a pixel per item of the region
structure       structures: fields of ctypes classes, dtypes and dicts, and their values
structure_view  the structure laid over the bytes
bookmarks       named places
edit            edits as DMA writes, and undo
time_machine    the bytes as they were at each of the last writes, and who wrote them
write_history   the bytes of a region before and after each of its last writes
clipboard       bytes as text in several formats

JavaScript: values (numbers), grid (rows), keys (cursor), tools (controls), overview (the strip),
image, structure (fields), time_machine, places (bookmarks, going back), box (pages), hexview.
"""

from .hexview import HexView

__all__ = ["HexView"]
