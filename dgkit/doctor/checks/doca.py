"""DOCA, MLNX_OFED and rdma-core: versions against what each feature needs."""
