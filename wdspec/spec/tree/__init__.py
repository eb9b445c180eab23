"""A document as a tree whose every value knows file, line and column: `nodes.py` has the few classes, all immutable."""
