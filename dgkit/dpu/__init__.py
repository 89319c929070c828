"""The DPU's own work, in whichever process the DPU is; below `session` and `agent`.

region_ref.py   region as the DPU refers to it: its own, or imported
copier.py       copies between any two regions, through bounce memory
digest.py       SHA-256 over bytes that were read by DMA
benchmark.py    latency and bandwidth measurements
baseline.py     the machine's floor, reported with each measurement
sampler.py      periodic blocks of latency samples
"""
