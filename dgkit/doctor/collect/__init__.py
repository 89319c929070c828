"""The only way to a machine: `reader` says how, `live` looks at this one, `snapshot` at a recorded.

`commands` and `probes` are what a look may start; `pseudonyms` makes a recording fit to be shown.
"""
