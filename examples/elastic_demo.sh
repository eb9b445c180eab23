#!/bin/sh
# Five sources, `kill -9` in mid-epoch on 8 processes, resumed on 3, killed, and finished on 12: see elastic_demo.py.
exec python "$(dirname "$0")/elastic_demo.py" "$@"
