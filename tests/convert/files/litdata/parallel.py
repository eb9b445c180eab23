from litdata import ParallelStreamingDataset, StreamingDataLoader, StreamingDataset

parallel_dataset = ParallelStreamingDataset(
    [
        StreamingDataset(input_dir="input_dir_1"),
        StreamingDataset(input_dir="input_dir_2"),
    ],
)
dataloader = StreamingDataLoader(parallel_dataset)
