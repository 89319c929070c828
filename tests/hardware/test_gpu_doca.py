"""GPU memory through DOCA, over softdoca and a real GPU: tests/support/doca/gpu_*cases.py.

No BlueField takes part. The samples are built here, by cc.
"""

import pytest

pytest.register_assert_rewrite(
    "support.doca.gpu_cases",
    "support.doca.gpu_provider_cases",
    "support.doca.gpu_memory",
    "support.doca.samples",
)

from support.doca.gpu_cases import *  # noqa: E402, F403
from support.doca.gpu_provider_cases import *  # noqa: E402, F403

pytestmark = pytest.mark.gpu
