"""Which process of a job this one is: its rank among those that train, its number among a rank's DataLoader workers.

In: arguments, torch.distributed, the environment, torch's worker information. Out: a `Seat`, and counters that the
workers of one rank share. The engine and the fluent face both ask here. Read `seat` first.
"""
