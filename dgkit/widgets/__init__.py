"""Panels for a notebook: allocate memory, start transfers, look at bytes, watch latency.

`panel` is what they share (with panel.js and panel.css), `frames` the one thread they have, `desk`
what those of one session have in common; then one module a panel, its .js and .css beside it.
"""
