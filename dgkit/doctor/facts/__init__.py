"""What readings mean: parsers of files and of commands' outputs, one module a thing.

Each has functions of text, which never raise for odd text, and a function of a Machine that reads
and parses: that is what `Machine.know` takes.
"""
