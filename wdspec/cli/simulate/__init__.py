"""What `wdspec simulate` finds out: a plan goes in, counts of what it draws come out.

Read `results.py` first; `simulation.py` draws, `coverage.py` says how much of a source that is.
"""
