"""Processes that read shards through one cache, each with forked workers; run as a program by tests.

Each worker reads all shards several times, in its own order, and compares every byte with the original.
"""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))


class Job:
    """One process with workers.

    Args:
        urls: SHA-256 of the right bytes by URL.
        cache: the directory.
        limit: its size, or None.
    """

    def __init__(self, urls, cache, limit=None, workers=2, passes=1):
        task = json.dumps(
            {"urls": urls, "cache": str(cache), "limit": limit, "workers": workers, "passes": passes}
        )
        self.process = subprocess.Popen(
            [sys.executable, __file__, task],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([os.path.dirname(os.path.dirname(HERE)), HERE])},
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def kill(self):
        """Kills the process and its workers, all at once."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()

    def finish(self, timeout=250):
        """Waits for its end; gives what it said, if anything was wrong."""
        _, said = self.process.communicate(timeout=timeout)
        return said if self.process.returncode or said else ""


def read_all(task, seed):
    from wdspec.cache.fill import CopyRules
    from wdspec.cache.names import CacheNames
    from wdspec.cache.shard_cache import ShardCache
    from wdspec.storage.storage import Storage
    from wdspec.urls.urls import ShardUrl

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


def main(task):
    import wdspec.stores.http  # noqa: F401  # once, before the workers are forked

    children = []
    for worker in range(task["workers"]):
        pid = os.fork()
        if not pid:
            code = 1
            try:
                read_all(task, f"{os.getpid()} {time.time_ns()} {worker}")
                code = 0
            except BaseException:
                import traceback

                traceback.print_exc()
            finally:
                from wdspec.cache.fill import finish

                finish()
                sys.stderr.flush()
                os._exit(code)
        children.append(pid)
    codes = [os.waitpid(pid, 0)[1] for pid in children]
    sys.exit(any(codes))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
