# SPDX-License-Identifier: Apache-2.0
"""Many pairs of host and DPU, on a Dask cluster (extra `fleet`).

fleet               Fleet: the pairs of a cluster; sweep, map and doctor over them
pair                description of one pair, held by the client
pair_plugin         the worker's side: opens a session when the worker starts, closes it at its end
pair_registry       the pairs of a cluster, updated as workers join and leave
cluster_checks      checks of encryption and versions, before a cluster is used
scheduler_calls     calls to the scheduler, with a time limit and typed errors
machine_leases      at most one measurement on a machine at a time, across all clients
dispatch            runs jobs on pairs: one per machine, with retries after lost workers
pair_measurement    latencies and rates of one pair, in its worker
sweep               options of a sweep, and the running sweep with its rows
part_files          a sweep's folder of Parquet files, each written atomically
row_table           rows in memory, as a DataFrame and as columns of a file
stragglers          which rows are stragglers; each pair relative to the median of all
compare             rows that became slower between two sweeps
diagnosis_groups    the doctor's verdicts on all machines, in groups
demo_cluster        clusters for the command: a scheduler's address, or local software pairs

Dask schedules, retries and encrypts; its scheduler keeps no state of dgkit.
"""

from .compare import diff
from .fleet import Fleet
from .pair_description import Pair
from .sweep import Sweep, SweepOptions

__all__ = ["Fleet", "Pair", "Sweep", "SweepOptions", "diff"]
