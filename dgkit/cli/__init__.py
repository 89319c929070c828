"""The `dgkit` command.

app.py       the group and its exit codes; failures.py puts an exception into one line
demo.py, bench.py, info.py, doctor.py, serve.py, lab.py, keys.py, softdoca.py   one command each,
    loaded when it is called
console.py   what goes to stdout and stderr; options.py: sizes and the options that several share
place.py     `--on`, and the provider that reaches the memory; info_gpu.py: info's part on GPUs
tables.py, sweep.py, target.py      what demo and bench show, measure and fill; lab_job.py: what
    lab starts and ends
"""

from .app import main

__all__ = ["main"]
