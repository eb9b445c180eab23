from datasets import load_dataset

ds = load_dataset("parquet", data_files={"train": "data/train-*.parquet"}, split="train", streaming=True)
