# SPDX-License-Identifier: Apache-2.0
"""Entry point of `python -m dgkit.cli`, the same as `dgkit`."""

import sys

from .app import main

if __name__ == "__main__":
    sys.exit(main())
