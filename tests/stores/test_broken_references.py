"""Objects of servers that are broken or hostile: none is silently wrong, none hangs, and no login leaves its host."""

import base64
import collections
import json
import random
import time

import pytest
from servers.objects import ObjectServer, data_of

import wdspec

RIGHT = ("ok", "once-429", "once-503", "here")
CODES = {
    **dict.fromkeys(("status-404", "status-410"), "missing"),
    **dict.fromkeys(("status-403", "status-500", "status-429", "short", "bomb", "endless", "slow"), "D263"),
    **dict.fromkeys(("circle", "file", "metadata", "elsewhere", "login"), "D263"),
    "page": "D264",
}
CANARY = base64.b64encode(b"reader:canary-4711").decode()


def check(seed, count, folder):
    """Read `count` samples, most of whose objects are broken."""
    rng = random.Random(seed)
    kinds = [rng.choice((*RIGHT, *CODES)) for _ in range(count)] + ["ok"]
    with (
        ObjectServer() as other,
        ObjectServer(elsewhere=other.url.replace("127.0.0.1", "localhost")) as server,
    ):
        rows = [{"__key__": f"{at:04d}", "url": f"{kind}/{seed}-{at}"} for at, kind in enumerate(kinds)]
        path = folder / f"{seed}.jsonl"
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        root = server.url.replace("//", "//reader:canary-4711@")
        fetch = {"bin": {"url": "url", "root": root, "missing": "skip"}}
        source = {"name": "a", "shards": str(path), "shuffle": rng.choice((0, 8)), "fetch": fetch}
        right = [row for row, kind in zip(rows, kinds, strict=True) if kind in RIGHT]
        spec = {
            "dataset": [source],
            "epoch": len(right),
            "errors": {"skip": True, "retry": "2s", "timeout": "5s"},
            "loader": {"fetch_memory": "1MB"},
        }
        begun = time.monotonic()
        with wdspec.loader(spec, num_workers=0) as loader:
            found = {sample["url"]: sample["bin"] for sample in loader}
            stats = loader.stats().sources["a"]
        assert time.monotonic() - begun < 30 + 5 * count
        assert found == {row["url"]: data_of(row["url"].partition("/")[2]) for row in right}
        expected = collections.Counter(CODES[kind] for kind in kinds if kind in CODES)
        counted = collections.Counter({**stats.skipped, **stats.dropped})
        assert counted <= expected  # what comes after the last right one is not read
        assert not source["shuffle"] or sum(counted.values()) >= sum(expected.values()) // 2
        assert source["shuffle"] or counted == expected
        assert not other.requests
        assert {each.get("authorization") for each in server.headers} == {f"Basic {CANARY}"}


@pytest.mark.long
@pytest.mark.parametrize("seed", range(50))
def test_many_broken_answers_are_errors_or_counted(tmp_path, seed):
    check(seed, 40, tmp_path)
