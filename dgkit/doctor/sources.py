"""The documents that checks rest on, each named once."""

from __future__ import annotations

import msgspec

__all__ = ["Document", "Source"]


class Source(msgspec.Struct, frozen=True):
    """A section of a document."""

    document: str
    section: str
    url: str

    def __str__(self) -> str:
        return f"{self.document}, {self.section}" if self.section else self.document


class Document:
    """A document; called with the name of a section it gives a Source."""

    def __init__(self, title: str, url: str = "") -> None:
        self.title, self.url = title, url

    def __call__(self, section: str = "") -> Source:
        """One of its sections."""
        return Source(self.title, section, self.url)


GPUNETIO = Document(
    "NVIDIA DOCA GPUNetIO guide", "https://docs.nvidia.com/doca/sdk/doca-gpunetio/index.html"
)
GPUDIRECT = Document(
    "NVIDIA GPUDirect RDMA", "https://docs.nvidia.com/cuda/gpudirect-rdma/index.html"
)
DMA_SAMPLES = Document("NVIDIA DOCA DMA sample guide 1.3")
FORUM = Document("NVIDIA developer forum", "https://forums.developer.nvidia.com")
P2PDMA = Document(
    "Linux kernel, PCI peer-to-peer DMA", "https://docs.kernel.org/driver-api/pci/p2pdma.html"
)
