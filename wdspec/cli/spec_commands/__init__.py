"""Commands about specs: `NAME.py` defines the command `NAME` and `SUMMARY`, its line in `wdspec --help`."""
