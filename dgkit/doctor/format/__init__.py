"""Formatters of a Diagnosis.

summary     sentences that all formatters share
terminal    the page of `dgkit doctor`, as styled lines
notebook    plain text for `str()`, and HTML for a notebook
"""
