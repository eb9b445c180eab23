"""Files of this machine, and of what is mounted on it. Read `local_store.py` first."""
