"""What is only seen when shards are compared: one file a kind. The facts of all shards go in, problems come out.

Each file has a function from `CheckedData` to problems; `judging.py` has the list of them.
"""
