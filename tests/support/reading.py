"""Readers for tests: the engine in this process, on any seat of any topology."""

from runs import Listed

from wdspec.planning.topology import Seat, Topology
from wdspec.spec.load import load


def reader_of(spec, topology=Topology(1, 1), rank=0):  # noqa: B008
    """The reader of one rank, for a spec without a fixed topology."""
    seat = Seat(rank, topology.ranks)
    return Listed.of(load(spec)).run(seat, topology.workers).reader()


def read_pass(spec, ranks, workers):
    """The samples of a pass of each rank, step by step, as `workers` processes of a rank read them."""
    parts, whole = Listed.of(load(spec)), []
    for rank in range(ranks):
        run = parts.run(Seat(rank, ranks), workers)
        reader = run.reader()
        whole.append([reader.batch(number) for number in range(run.plan.timeline.epoch_steps)])
        reader.close()
    return whole


def names(samples):
    """The keys of samples."""
    return [sample["__key__"] for sample in samples]


def corrupt(path, sample, member=0):
    """Breaks a header of a shard that `write_source` wrote: two members of one header and one data block each."""
    data = bytearray(path.read_bytes())
    data[(sample * 4 + member * 2) * 512 + 3] ^= 0xFF
    path.write_bytes(bytes(data))
