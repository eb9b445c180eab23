"""Processes that read shards through one cache, each with forked workers.

Each worker reads all shards several times, in its own order, and compares every byte with the original.
"""

import hashlib
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from multiprocessing import get_context

import wdspec.stores.http  # noqa: F401  # once, before the workers are forked
from wdspec.cache.fill import CopyRules, finish
from wdspec.cache.names import CacheNames
from wdspec.cache.shard_cache import ShardCache
from wdspec.storage.storage import Storage
from wdspec.urls.urls import ShardUrl


class Job:
    """One process with workers, in a process group of its own; forked, as a new one would import for a while.

    Args:
        urls: SHA-256 of the right bytes by URL.
        cache: the directory.
        limit: its size, or None.
    """

    def __init__(self, urls, cache, limit=None, workers=2, passes=1):
        task = {"urls": urls, "cache": str(cache), "limit": limit, "workers": workers, "passes": passes}
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = get_context("fork").Process(target=main, args=(task, self._said.fileno()))
        self.process.start()
        os.setpgid(self.process.pid, self.process.pid)  # now, whether the process has come to that or not

    def kill(self):
        """Kills the process and its workers, all at once."""
        if self.process.is_alive():
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.join()
        self._said.close()

    def finish(self, timeout=250):
        """Waits for its end; gives what it said, if anything was wrong."""
        self.process.join(timeout)
        with self._said:
            self._said.seek(0)
            said = self._said.read()
        return said if said or self.process.exitcode == 0 else f"ended with {self.process.exitcode}"


def read_all(task, seed):
    storage = Storage(cache=ShardCache(CacheNames(task["cache"]), CopyRules(task["limit"])))
    order = random.Random(seed)
    for _ in range(task["passes"]):
        urls = list(task["urls"])
        order.shuffle(urls)
        for url in urls:
            seen = hashlib.sha256()
            with storage.open(storage.resolve(ShardUrl(url, "/"))) as stream:
                while piece := stream.read(100_000):
                    seen.update(piece)
            if seen.hexdigest() != task["urls"][url]:
                raise AssertionError(f"wrong bytes of {url}")


def main(task, errors):
    os.setpgid(0, 0)
    os.dup2(errors, 2)
    sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
    children = []
    for worker in range(task["workers"]):
        pid = os.fork()
        if not pid:
            code = 1
            try:
                read_all(task, f"{os.getpid()} {time.time_ns()} {worker}")
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                finish()
                sys.stderr.flush()
                os._exit(code)
        children.append(pid)
    codes = [os.waitpid(pid, 0)[1] for pid in children]
    sys.exit(any(codes))
