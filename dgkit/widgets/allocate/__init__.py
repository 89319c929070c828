# SPDX-License-Identifier: Apache-2.0
"""Panel that allocates, fills, exports and registers memory.

`allocate`: the panel.
"""

from .allocate_panel import AllocatePanel

__all__ = ["AllocatePanel"]
