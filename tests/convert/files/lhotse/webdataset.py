from lhotse import CutSet
from lhotse.dataset import DynamicCutSampler

cuts = CutSet.from_webdataset("data/shard-{000000..000321}.tar", shuffle_shards=True)
sampler = DynamicCutSampler(cuts, max_cuts=16, max_duration=None, shuffle=False)
