import datasets
from datasets import concatenate_datasets, load_dataset


def get():
    en = load_dataset("allenai/c4", "en", split="train", streaming=True)
    code = concatenate_datasets(
        [
            load_dataset("bigcode/the-stack", data_dir="data/python", split="train", streaming=True),
            load_dataset("bigcode/the-stack", data_dir="data/rust", split="train", streaming=True),
        ]
    )
    return datasets.interleave_datasets([en, code], [0.6, 0.4])
