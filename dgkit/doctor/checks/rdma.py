"""RDMA devices, and whether they take dma-buf regions."""
