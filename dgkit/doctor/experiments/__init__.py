# SPDX-License-Identifier: Apache-2.0
"""Experiments of `dgkit doctor --try`: each in a child process, harmless, and named before it runs.

plan        the experiments that fit a machine
program     what the child process runs
perform     runs the child under a time limit
overrule    results take the place of what the readings suggested
"""
