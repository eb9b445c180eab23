"""What a spec came to at one time: the shards of its sources, with the size of each and what changes with it.

A lock is a small JSON file beside a spec (`lock_file.py`). The shards that were listed come back from it without a
store being asked; what stores say of them now is compared with it (`looking.py`), and so with what `wdspec stats` has
measured (`still_measured.py`).
"""
