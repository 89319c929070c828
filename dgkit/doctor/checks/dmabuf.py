"""dma-buf: whether GPU memory can be had as an fd, and who takes it."""
