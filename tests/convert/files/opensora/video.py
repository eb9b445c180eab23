dataset = dict(type="VariableVideoTextDataset", data_path="meta.csv", frame_interval=1)  # noqa: C408
bucket_config = {"240p": {51: (0.4, 24), 102: ((0.4, 0.33), 12)}}
num_workers = 8
