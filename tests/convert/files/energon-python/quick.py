from megatron.energon import WorkerConfig, get_loader, get_train_dataset

loader = get_loader(
    get_train_dataset(
        "/data/coyo",
        batch_size=32,
        shuffle_buffer_size=100,
        max_samples_per_sequence=100,
        worker_config=WorkerConfig.default_worker_config(),
    )
)
