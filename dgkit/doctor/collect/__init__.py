# SPDX-License-Identifier: Apache-2.0
"""Data collection: the only access of the doctor to a machine.

- `reader`: the `Reader` interface, the `Reading` that it returns, the readings that a check uses.
- `live`: a reader of this machine.
- `snapshot`: the snapshot file format, and a reader of a snapshot.
- `commands`: subprocesses with a time limit.
- `probes`: the program that queries CUDA, libibverbs and the dynamic loader in a child process.
"""
