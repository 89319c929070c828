"""The checks, one module a family: registry.FAMILIES is their list and their order.

A check reads nothing by itself: it asks `case.machine.know(...)` for what the modules of `facts`
made of the readings, or `case.machine.read` for a file or a command, and yields findings.
"""
