"""Text and Python values in, trees out, within limits that hold against hostile files.

Read `parser.py` first. `core_schema.py` says what a plain scalar means, `syntax_errors.py` puts the parser's complaints
into words, `python_values.py` makes trees of dicts, and `file_codes.py` explains what can be wrong here.
"""
