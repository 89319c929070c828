# SPDX-License-Identifier: Apache-2.0
"""Redaction of recordings, so that a snapshot can be shared.

- `redactor`: replaces text that identifies a machine or a person by pseudonyms.
- `patterns`: the regular expressions that find such text.
- `pseudonym`: pseudonyms in the format of the original, equal for all occurrences of a value.
- `vocabulary`: the words of names that are never redacted.
"""
