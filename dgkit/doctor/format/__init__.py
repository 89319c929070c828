# SPDX-License-Identifier: Apache-2.0
"""Formatters of a Diagnosis.

summary     sentences that all formatters share
terminal    the page of `dgkit doctor`, as styled lines
explain     the chain from readings to the verdict
pages       the pages of --symptom, --program and --compare, as styled lines
report      one screen of text, for a forum or an issue
notebook    plain text for `str()`, and HTML for a notebook
"""
