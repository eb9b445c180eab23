"""A new key that drops samples, declared in one place: whatever depends on dropped samples is right with it.

The key `multiples` exists only here. Its declaration is one field of a source; its effect is one step of a transform.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Annotated, Any

import pytest
from pydantic import Field
from shardmaking import write_shard

import wdspec
from wdspec.cli.batch import needs_samples
from wdspec.jobs.job import skip_columns
from wdspec.read.error_budget import ErrorBudget
from wdspec.read.transform import SourceParts, Step, Transform, UserFunctions
from wdspec.spec import build, validation
from wdspec.spec.language.effects import Drops, Key
from wdspec.spec.language.values import Positive
from wdspec.spec.load import check
from wdspec.spec.spec import Source
from wdspec.testing import assert_resumable


class WithMultiples(Source):
    """A source with the new key."""

    multiples: Annotated[Positive | None, Key("order values cost", Drops())] = Field(
        None, description="Keep only samples whose `cls` is a multiple of this number."
    )


@dataclass(frozen=True)
class Filtering(Transform):
    """The steps of a source with the new key."""

    multiples: int = 1

    def _user_steps(self, budget: ErrorBudget, maps: UserFunctions) -> list[Step]:
        def keep(sample: dict[str, Any]) -> dict[str, Any] | None:
            if sample["cls"] % self.multiples == 0:
                return sample
            budget.dropped["multiples"] += 1
            return None

        return [keep, *super()._user_steps(budget, maps)]


@pytest.fixture(autouse=True)
def new_key(monkeypatch: pytest.MonkeyPatch) -> None:
    parts_of = SourceParts.of

    def filtering(spec: Any, source: Any, *rest: Any) -> SourceParts:
        parts = parts_of(spec, source, *rest)
        if source.multiples is None:
            return parts
        return replace(parts, transform=Filtering(**vars(parts.transform), multiples=source.multiples))

    for module in (build, validation):
        monkeypatch.setattr(module, "Source", WithMultiples)
    monkeypatch.setitem(validation._MERGED, WithMultiples, validation.MERGED_SOURCE)
    monkeypatch.setattr(SourceParts, "of", filtering)


@pytest.fixture
def spec(tmp_path: Any) -> dict[str, Any]:
    """Two sources, of which the first one keeps every third of its 90 samples."""
    sources = []
    for name, shards in (("a", 6), ("b", 4)):
        for shard in range(shards):
            numbers = range(15 * shard, 15 * shard + 15)
            path = tmp_path / f"{name}-{shard}.tar"
            write_shard(path, [(f"{name}{n:03}", {"cls": str(n).encode()}) for n in numbers])
        sources.append({"name": name, "shards": str(tmp_path / f"{name}-{{0..{shards - 1}}}.tar")})
    sources[0]["multiples"] = 3
    return {
        "dataset": sources,
        "batch": 4,
        "epoch": {"batches": 12},
        "elastic": {"ranks": 1, "workers": 2},
        "defaults": {"shuffle": 20},
    }


def keys(spec: dict[str, Any], epochs: int = 1, workers: int = 0) -> list[list[str]]:
    with wdspec.loader(spec, num_workers=workers) as loader:
        return list(itertools.chain(*([batch["__key__"] for batch in loader] for _ in range(epochs))))


def test_it_drops_samples_and_keeps_the_others(spec):
    seen = {key for batch in keys(spec, 3) for key in batch}
    assert {int(key[1:]) % 3 for key in seen if key[0] == "a"} == {0}
    assert {int(key[1:]) % 3 for key in seen if key[0] == "b"} == {0, 1, 2}


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_after_skipped_steps_are_the_same(spec, workers):
    whole = keys(spec, 2)
    assert keys({**spec, "skip": ["3..5", "10..14"]}, 2, workers) == whole[:3] + whole[6:10] + whole[15:]


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize(
    ("workers", "stops"), [(0, None), (2, [0, 1, 5, 8]), pytest.param(2, None, marks=pytest.mark.long)]
)
@pytest.mark.parametrize("more", [{}, {"skip": ["2..4"]}])
def test_it_resumes_after_every_batch(spec, workers, stops, more):
    spec["epoch"] = {"batches": 6}
    assert_resumable(lambda: wdspec.loader({**spec, **more}, num_workers=workers), stops=stops)


def test_a_state_rejects_another_value(spec):
    with wdspec.loader(spec, num_workers=0) as loader:
        next(iter(loader))
        state = loader.state_dict()
    spec["dataset"][0]["multiples"] = 5
    with (
        wdspec.loader(spec, num_workers=0) as loader,
        pytest.raises(wdspec.UsageError, match=r"sources\.a\.multiples: was 3, now 5"),
    ):
        loader.load_state_dict(state)


def finite(spec: dict[str, Any], **options: Any) -> dict[str, Any]:
    return {**spec, "batch": 4, "epoch": {"pass": "pad"}, **options}


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_pass_has_every_kept_sample_once(spec, ranks):
    spec = finite(spec, elastic={"ranks": 2, "workers": 1})
    real, padding = [], 0
    for rank in range(ranks):
        with wdspec.loader(spec, num_workers=0, rank=rank, world_size=ranks) as loader:
            for batch in loader:
                for key, is_real in zip(batch["__key__"], batch["__mask__"].tolist(), strict=True):
                    real += [key] if is_real else []
                    padding += not is_real
    assert sorted(real) == [f"a{n:03}" for n in range(0, 90, 3)] + [f"b{n:03}" for n in range(60)]
    assert (
        padding == 60 + 2
    )  # for the samples that are dropped, and at the end of 150 samples in batches of 8


def test_a_pass_resumes_after_every_batch(spec):
    assert_resumable(lambda: wdspec.loader(finite(spec), num_workers=0), stops=range(0, 80, 9))


@pytest.mark.parametrize(("multiples", "codes"), [(3, ["E312"]), (None, [])])
def test_tuples_of_a_pass_must_show_what_is_dropped(spec, multiples, codes):
    spec["dataset"][0]["multiples"] = multiples
    problems = check({**finite(spec, to_tuple="cls"), "epoch": {"pass": "drop"}})[1]
    assert [problem.code for problem in problems if problem.is_error] == codes


def test_commands_count_what_is_dropped_and_read_samples_to_know_it(spec):
    loaded = wdspec.load(spec)
    assert list(skip_columns(loaded)) == ["dropped"]
    assert needs_samples(loaded, loaded.sources[0])
