"""Panel that allocates, fills, exports and registers memory.

`allocate`: the panel.
`fill`: filling a region with a pattern, block by block.
`placement_options`: where memory can be allocated.
"""

from .allocate import AllocatePanel

__all__ = ["AllocatePanel"]
