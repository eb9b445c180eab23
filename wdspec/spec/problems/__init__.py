"""What is wrong with a spec: problems as objects, collected once each, in file order, and shown as text or JSON.

In go a code, a node and a sentence; out come `Problem`s. Read `problems.py` first; `codes.py` says what a code is.
"""
