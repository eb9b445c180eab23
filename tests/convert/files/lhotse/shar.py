from lhotse import CutSet
from lhotse.dataset import DynamicBucketingSampler

english = CutSet.from_shar(in_dir="data/shar/en", shuffle_shards=True, seed="trng").repeat()
german = CutSet.from_shar(
    fields={"cuts": ["de/cuts.000000.jsonl.gz"], "recording": ["de/recording.000000.tar"]}
)
cuts = CutSet.mux(english, german, weights=[0.75, 0.25], seed=0)
sampler = DynamicBucketingSampler(
    cuts.filter(lambda cut: 1 <= cut.duration <= 30),
    max_duration=200.0,
    max_cuts=64,
    quadratic_duration=15.0,
    num_buckets=30,
    shuffle=True,
    seed=7,
)
