# SPDX-License-Identifier: Apache-2.0
"""What a notebook shows of GPU memory, and of the ways by which others reach it."""

import cupy

import dgkit


def test_a_card_says_what_the_repr_says_and_what_auto_chose(fake_cuda):
    with dgkit.empty((2, 3), "f4", on="auto", name="weights") as there:
        shown = there._repr_html_()
        for words in ("GPU memory", "weights", "24 bytes", "(2, 3) of f4", "cuda:0", there.chosen):
            assert words in shown
    assert "GPU memory (closed)" in there._repr_html_()
    with dgkit.empty(8, on="gpu") as there:
        assert "Chosen" not in there._repr_html_()


def test_a_card_of_an_array_says_whose_it_is_and_why_it_is_not_shared(fake_cuda):
    shown = dgkit.wrap(cupy.zeros(100, "u1"))._repr_html_()
    for words in ("100 bytes", "ndarray", "share_block=True"):
        assert words in shown


def test_pinned_memory_is_called_pinned(fake_cuda):
    with dgkit.empty(8, on="pinned") as there:
        assert "Pinned host memory" in there._repr_html_()
    assert "Pinned host memory (closed)" in there._repr_html_()


def test_a_dma_buf_shows_its_fd_and_whether_copies_are_synchronous(fake_cuda):
    with dgkit.empty(10_000, on="gpu") as there, there.dmabuf() as found:
        shown = found._repr_html_()
        for words in (f">{found.fd}<", "10000 bytes, from byte 0 of 12288", "CU_CTX_SYNC_MEMOPS"):
            assert words in shown
    assert "dma-buf (closed)" in found._repr_html_()
    assert "Fd" not in found._repr_html_()


def test_the_way_by_nvidia_peermem_shows_why_and_what_to_do(fake_cuda):
    with dgkit.empty(100, on="gpu") as there:
        fake_cuda.order("cuMemGetHandleForAddressRange=801,attr124=0")
        found = there.dmabuf_or_peermem()
        fake_cuda.order("")
    shown = found._repr_html_()
    for words in (f"{found.address:#x}", "100 bytes", "CUDA_ERROR_NOT_SUPPORTED"):
        assert words in shown
    assert found.loaded or "sudo modprobe nvidia-peermem" in shown
