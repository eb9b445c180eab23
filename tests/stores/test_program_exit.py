"""A program that ends while shards are fetched ahead."""

import subprocess
import sys

PROGRAM = """
import threading
from wdspec.stores.read_ahead import background_fetcher

fetcher = background_fetcher()
# The interpreter stops the fetching thread for good wherever it is, so also where it holds this.
holding = threading.Thread(target=fetcher._changed.acquire)
holding.start()
holding.join()

class Expected:
    def __del__(self, wake=fetcher.wake, say=print):
        say("closed", flush=True)
        wake()

expected = Expected()
"""


def test_program_exit_does_not_wait_for_a_dead_thread():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=200)
    assert (done.returncode, done.stdout, done.stderr) == (0, "closed\n", "")
