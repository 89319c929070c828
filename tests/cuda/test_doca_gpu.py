"""GPU memory through DOCA, over softdoca and the stand-in: tests/doca_gpu_*cases.py."""

import pytest

pytest.register_assert_rewrite(
    "doca_gpu_cases", "doca_gpu_provider_cases", "doca_gpu_rig", "doca_samples_rig"
)

from doca_gpu_cases import *  # noqa: E402, F403
from doca_gpu_provider_cases import *  # noqa: E402, F403
from doca_samples_rig import export_of_the_sample  # noqa: E402


def test_the_sample_goes_by_the_address_where_doca_takes_no_dma_buf(samples, tmp_path):
    said = export_of_the_sample(samples, tmp_path, 4096, SOFTDOCA_LOG="info")
    assert "is not a dma-buf" in said  # the stand-in's is a memfd, and here it looks like one
    assert "as with nvidia-peermem" in said
    assert "by its address: nvidia-peermem" in said


def test_the_sample_goes_by_the_address_where_cuda_gives_no_dma_buf(samples, tmp_path):
    knobs = {"DGKIT_STAND_IN": "attr124=0", "SOFTDOCA_LOG": "info"}
    said = export_of_the_sample(samples, tmp_path, 4096, **knobs)
    assert "cuMemGetHandleForAddressRange failed" in said
    assert "as with nvidia-peermem" in said
