"""Redaction of recordings, so that a snapshot can be shared.

- `filter`: drops what no check uses.
- `redactor`: replaces what identifies a machine or a person by pseudonyms.
- `patterns`: the regular expressions that find such text.
- `pseudonym`: the pseudonyms: same format as the original, the same for each occurrence.
- `vocabulary`: the words of names that are never redacted.
"""
