# SPDX-License-Identifier: Apache-2.0
"""Version of dgkit and the name under which an index has it, defined only here."""

__version__ = "0.2.0"

DISTRIBUTION = "dgkit-dpu"
