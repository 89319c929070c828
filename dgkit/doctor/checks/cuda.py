"""CUDA: what the driver speaks, which toolkit is there, what each library needs."""
