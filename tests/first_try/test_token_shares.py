"""Shares of tokens are as exact as the lengths of documents allow, by the formula in docs/batches.md."""

import json
import math
import random
from itertools import islice

import pytest

import wdspec

MEANS = {"web": 300, "code": 600, "wiki": 1200}
SHARES = {"web": 0.6, "code": 0.3, "wiki": 0.1}
SPREAD = math.sqrt(math.e - 1)
"""Standard deviation over mean of a log-normal distribution with σ = 1."""


def standard_error(name, tokens):
    """The standard error of a share: the formula of docs/batches.md."""
    share = SHARES[name]
    read = {each: tokens * SHARES[each] / MEANS[each] for each in MEANS}
    others = sum((SHARES[each] / (1 - share)) ** 2 * SPREAD**2 / read[each] for each in MEANS if each != name)
    return share * (1 - share) * math.sqrt(SPREAD**2 / read[name] + others)


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    """Documents of log-normal length, of which only the number of tokens is stored, and their mean."""
    folder, means = tmp_path_factory.mktemp("corpora"), {}
    for name, mean in MEANS.items():
        rng = random.Random(name)
        lengths = [max(1, round(rng.lognormvariate(math.log(mean) - 0.5, 1))) for _ in range(12_000)]
        means[name] = sum(lengths) / len(lengths)
        for part in range(4):
            rows = (json.dumps({"tokens": length}) + "\n" for length in lengths[part::4])
            (folder / f"{name}-{part}.jsonl").write_text("".join(rows))
    return folder, means


def shares_after(corpora, tokens, seed):
    """The shares of the tokens of the first batches, up to a number of tokens."""
    folder, means = corpora
    sources = [
        {"name": name, "shards": str(folder / f"{name}-*.jsonl"), "weight": share, "mean_cost": means[name]}
        for name, share in SHARES.items()
    ]
    spec = {
        "seed": seed,
        "dataset": sources,
        "mix": {"shares_in": "cost"},
        "batch": {"cost": "tokens", "max_cost": 32_768, "padded": False, "overlong": "alone"},
    }
    read = dict.fromkeys(SHARES, 0)
    with wdspec.loader(spec, num_workers=0) as loader:
        for batch in islice(loader, 10_000_000):
            for source, length in zip(batch["__source__"], batch["tokens"].tolist(), strict=True):
                read[source] += length
            if sum(read.values()) >= tokens:
                return {name: each / sum(read.values()) for name, each in read.items()}
    return None


def test_shares_of_tokens_are_within_three_standard_errors_after_half_a_million(corpora):
    for seed in range(5):
        for name, share in shares_after(corpora, 500_000, seed).items():
            assert abs(share - SHARES[name]) <= 3 * standard_error(name, 500_000), (seed, name, share)


def test_the_standard_error_is_that_of_the_page():
    assert round(100 * standard_error("web", 500_000), 1) == 2.2
    assert round(100 * standard_error("web", 50_000_000), 2) == 0.22


def test_shares_of_tokens_are_within_half_a_point_in_a_long_run(corpora):
    for name, share in shares_after(corpora, 50_000_000, 0).items():
        assert abs(share - SHARES[name]) <= 0.005, (name, share)
