"""Many pairs of host and DPU, on a cluster of Dask (extra `fleet`).

fleet               Fleet: the pairs of a cluster, and what to do with all of them
pair                one pair, as the client knows it
pair_plugin         the worker's side: opens a session with the worker and closes it with it
pair_registry       the pairs of a cluster, as its workers come and go
cluster_checks      encryption and versions, before anything else is done
scheduler_calls     calls of the scheduler, with a time limit and typed errors
machine_leases      one pair of a machine at a time, whatever client asks
dispatch            jobs on pairs: one a machine, lost workers, results that never come
pair_measurement    latencies and rates of one pair, in its worker
sweep               a sweep over all pairs, its rows, its end
part_files          a folder of Parquet files, each whole when it is there
row_table           rows as a DataFrame; stragglers
soak                bytes that are compared for hours
heat_map            each pair against the median of all
compare             what got slower between two sweeps
diagnosis_groups    the doctor's verdicts on all machines, in groups
demo_cluster        clusters for the command: a scheduler's address, or software pairs here

Dask schedules, retries, encrypts and shows the cluster; the scheduler keeps no state of dgkit.
"""

from .compare import diff
from .fleet import Fleet
from .pair import Pair
from .sweep import Sweep

__all__ = ["Fleet", "Pair", "Sweep", "diff"]
