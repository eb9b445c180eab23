"""Commands about shards: `NAME.py` defines the command `NAME` and `SUMMARY`, its line in `wdspec --help`."""
