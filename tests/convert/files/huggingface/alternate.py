from datasets import interleave_datasets, load_dataset

parts = [
    load_dataset("webdataset", data_files="s3://b/de-{00..09}.tar", split="train"),
    load_dataset("webdataset", data_files="s3://b/fr-{00..09}.tar", split="train"),
]
ds = interleave_datasets(datasets=parts)
