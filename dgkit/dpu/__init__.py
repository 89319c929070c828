# SPDX-License-Identifier: Apache-2.0
"""The DPU as a service on plain values, in whichever process it is; below `session` and `agent`.

service.py      DpuService: what a DPU does with regions
region_ref.py   reference to a region: the DPU's own, or an imported one
job.py          transfers, copies and digests, cut into chunks by one loop
job_worker.py   thread that runs the jobs of a session
copier.py       slots of jobs; queues and bounce memory of one thread, and its small copies
byte_pool.py    memory for the results of reads: bytes objects that are filled later, and reused
benchmark.py    latency and bandwidth measurements, each with the machine's floor
sampler.py      periodic blocks of latency samples
"""
