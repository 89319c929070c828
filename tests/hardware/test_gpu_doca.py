"""GPU memory through DOCA, over softdoca and a real GPU: the tests of tests/doca_gpu_*cases.py.

No BlueField takes part. The samples are built here, by cc.
"""

import pytest

pytest.register_assert_rewrite(
    "doca_gpu_cases", "doca_gpu_provider_cases", "doca_gpu_rig", "doca_samples_rig"
)

from support.doca.gpu_cases import *  # noqa: E402, F403
from support.doca.gpu_provider_cases import *  # noqa: E402, F403

pytestmark = pytest.mark.gpu
