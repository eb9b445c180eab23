"""Things being written that appear when they are whole, or not at all.

Bytes go in, and after `commit` a file or object is there. Read `output.py` first; stores make these.
"""
