import pickle
from fractions import Fraction

import pytest

from wdspec.base.errors import UsageError
from wdspec.planning.plan import make_plan
from wdspec.planning.shares import effective_shares
from wdspec.planning.topology import Topology
from wdspec.shards.listing import list_texts
from wdspec.spec.language.batch import Batch
from wdspec.spec.language.options import Epoch, MixOptions
from wdspec.spec.spec import Source, Spec
from wdspec.storage.storage import Storage


def source(name, shards="{0..9}.tar", **options):
    return Source(name=name, shards=(f"{name}-{shards}",), base="/data", **options)


def listed(spec):
    return {s.name: list_texts(s.shards, s.base, Storage()) for s in spec.sources}


def planned(spec, ranks=1, workers=1):
    return make_plan(spec, listed(spec), Topology(ranks, workers))


def shares(*dataset, mix=None):
    spec = Spec(dataset=dataset, mix=mix or MixOptions())
    counts = {name: len(shards) for name, shards in listed(spec).items()}
    return effective_shares(dataset, spec.mix, lambda s: counts[s.name])


def test_without_shares_sources_are_weighted_by_shards():
    assert shares(source("a"), source("b", "{0..29}.tar")) == {"a": Fraction(1, 4), "b": Fraction(3, 4)}


def test_without_shares_sources_are_weighted_by_samples_if_all_numbers_are_known():
    few, many = source("a", samples=100), source("b", "0.tar", samples=100_000)
    assert shares(few, many) == {"a": Fraction(1, 1001), "b": Fraction(1000, 1001)}
    assert shares(few, source("b", "0.tar"))["a"] == Fraction(10, 11)
    assert shares(few, many, mix=MixOptions(by="shards"))["a"] == Fraction(10, 11)
    nest = Source(name="n", dataset=(many, source("c", samples=300)), base="/data")
    assert shares(few, nest)["a"] == Fraction(100, 100_400)
    unknown = Source(name="n", dataset=(many, source("c")), base="/data")
    assert shares(few, unknown)["a"] == Fraction(10, 21)


def test_upsample_multiplies_the_size():
    assert shares(source("a", upsample=3.0), source("b", "{0..29}.tar"))["a"] == Fraction(1, 2)


def test_sizes_are_capped_and_tempered():
    mixed = shares(
        source("a", "{0..3}.tar"), source("b", "{0..99}.tar"), mix=MixOptions(cap=16, temperature=2.0)
    )
    assert mixed == {"a": Fraction(1, 3), "b": Fraction(2, 3)}
    assert shares(source("a"), source("b", "{0..99}.tar"), mix=MixOptions(by="equal"))["a"] == Fraction(1, 2)


def test_size_by_samples_needs_declared_samples():
    a, b = source("a", samples=100), source("b", samples=300)
    assert shares(a, b, mix=MixOptions(by="samples"))["b"] == Fraction(3, 4)
    with pytest.raises(UsageError, match=r"`samples:`.*source c"):
        shares(a, source("c"), mix=MixOptions(by="samples"))


@pytest.mark.parametrize("temperature", [0.001, 1e-320])
def test_sizes_that_overflow_are_rejected(temperature):
    mix = MixOptions(by="bytes", temperature=temperature)
    with pytest.raises(UsageError, match=r"nearer to 1, or set `cap`.*source a"):
        shares(source("a", bytes=10**15), source("b", bytes=10**12), mix=mix)


def test_shares_of_nested_mixes_are_multiplied():
    inner = Source(
        name="in", dataset=(source("x", weight=3.0), source("y", weight=1.0)), probability=0.5, base="/"
    )
    mixed = shares(source("a", probability=0.5), inner)
    assert mixed == {"a": Fraction(1, 2), "x": Fraction(3, 8), "y": Fraction(1, 8)}
    assert sum(mixed.values()) == 1


def test_probabilities_that_nearly_sum_to_one_are_normalized_exactly():
    assert (
        sum(
            shares(
                source("a", probability=0.1), source("b", probability=0.2), source("c", probability=0.7)
            ).values()
        )
        == 1
    )


def test_a_share_of_zero_is_off_and_all_zero_is_an_error():
    plan = planned(Spec(dataset=(source("a", weight=0.0), source("b", weight=2.0))))
    assert [s.name for s in plan.sources] == ["b"]
    assert plan.off == ("a",)
    with pytest.raises(UsageError, match="every share is 0 in the mix of a, b"):
        planned(Spec(dataset=(source("a", weight=0.0), source("b", weight=0.0))))


def test_epochs_are_whole_global_batches():
    data = (source("a"),)
    assert (
        planned(
            Spec(dataset=data, batch=Batch(size=10), epoch=Epoch(samples=105)), ranks=2
        ).timeline.epoch_steps
        == 5
    )
    assert (
        planned(
            Spec(dataset=data, batch=Batch(global_size=20), epoch=Epoch(batches=7)), ranks=2
        ).epoch_samples
        == 140
    )
    assert planned(Spec(dataset=data, epoch=Epoch(samples=9)), ranks=2).timeline.epoch_steps == 4
    assert (
        planned(
            Spec(dataset=data, epoch=Epoch(samples=90), limit=30, batch=Batch(size=10))
        ).timeline.epoch_steps
        == 3
    )
    assert planned(Spec(dataset=data)).timeline.epoch_steps is None


def test_errors_about_unfit_values_suggest_fitting_ones():
    data = (source("a"),)
    with pytest.raises(UsageError, match="shorter than one global batch of 40"):
        planned(Spec(dataset=data, batch=Batch(size=10), epoch=Epoch(samples=39)), ranks=4)
    with pytest.raises(UsageError, match=r"512.*3 ranks; use 510 or 513"):
        planned(Spec(dataset=data, batch=Batch(global_size=512)), ranks=3)
    with pytest.raises(
        UsageError, match=r"`limit: 25` ends inside a global batch of 10 samples.*use 20 or 30"
    ):
        planned(Spec(dataset=data, limit=25, batch=Batch(size=10)))
    with pytest.raises(TypeError, match="`epoch:`"):
        planned(Spec(dataset=data)).timeline.length(0)


def test_the_plan_of_a_million_shards_and_its_pickle_are_small():
    plan = planned(Spec(dataset=(source("a", "{000000..999999}.tar"),)), 128, 8)
    assert len(pickle.dumps(plan)) < 10_000
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert all(plan.sources[0].order.entry(s, 10_000).shard < 10**6 for s in range(0, 1024, 100))


def test_adding_a_source_keeps_the_shard_order_of_the_others():
    alone = planned(Spec(dataset=(source("a"),)))
    together = planned(Spec(dataset=(source("a"), source("b"))))
    order, same = alone.sources[0].order, together.sources[0].order
    assert [order.entry(0, i) for i in range(30)] == [same.entry(0, i) for i in range(30)]


def test_batches_rotate_through_the_canonical_workers_across_epochs():
    plan = planned(Spec(dataset=(source("a"),)), workers=3)
    assert [plan.slot_of_step(j) for j in range(5)] == [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1)]
