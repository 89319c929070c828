# SPDX-License-Identifier: Apache-2.0
"""Teaching labs, graded by a process that owns the memory and drives the student's code.

Each lab is a module with its memory and its tests; the docstring of the module begins with the
number of the lab. The notebooks are in notebooks/labs/source, one folder for each lab; the labs are
not listed anywhere else.

verdict.py      cases of a test, partial credit, the seed of the course
submission.py   the grader's end: calls functions of a submission in another process
harness.py      the submission's end: runs the student's cells and answers calls
codec.py        messages between the two ends, which contain only plain values
sandbox.py      isolation and limits of the submission's process
cgroup.py       limits of all its processes together
student_notebook.py
                cells of a notebook: solutions and tests
landlock.py     isolation without rights or programs: Linux's Landlock
grader.py       grades the tests of a notebook against a submission
watchdog.py     runs the grader in another process, ends it if a submission stops it, and the
                processes that a submission leaves
autograde.py    the grader as a preprocessor of nbgrader; the only module that imports it
course.py       creates a course
"""
