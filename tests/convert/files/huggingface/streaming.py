from datasets import interleave_datasets, load_dataset

urls = "https://host.example.org/cc3m-train-{0000..0575}.tar"
cc3m = load_dataset("webdataset", data_files={"train": urls}, split="train", streaming=True)
own = load_dataset("json", data_files=["data/a.jsonl", "data/b.jsonl"], split="train", streaming=True)
own = own.shuffle(seed=1, buffer_size=1000)
mixed = interleave_datasets(
    [cc3m, own], probabilities=[0.75, 0.25], seed=42, stopping_strategy="all_exhausted"
)
