import argparse

from lhotse import load_manifest_lazy
from lhotse.dataset import DynamicBucketingSampler, SimpleCutSampler


class Data:
    def __init__(self, args):
        self.args = args

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser):
        group = parser.add_argument_group(title="ASR data")
        group.add_argument("--max-duration", type=int, default=600, help="seconds in a batch")
        group.add_argument("--num-buckets", type=int, default=50)
        group.add_argument("--shuffle", type=bool, default=True)

    def train_dataloaders(self, cuts_train):
        return DynamicBucketingSampler(
            cuts_train,
            max_duration=self.args.max_duration,
            shuffle=self.args.shuffle,
            num_buckets=self.args.num_buckets,
            buffer_size=self.args.num_buckets * 2000,
            shuffle_buffer_size=20 * 1000,
            drop_last=True,
        )

    def test_dataloaders(self):
        cuts = load_manifest_lazy("data/fbank/cuts_test.jsonl.gz")
        return SimpleCutSampler(cuts, max_duration=self.args.max_duration, shuffle=False)
