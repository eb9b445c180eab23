from megatron.energon import get_train_dataset

seq_length = 8192


def provide(task_encoder, worker_config):
    return get_train_dataset(
        "../energon/inline.yaml",
        batch_size=1,
        task_encoder=task_encoder,
        worker_config=worker_config,
        shuffle_buffer_size=None,
        max_samples_per_sequence=None,
        packing_buffer_size=500,
        virtual_epoch_length=1000,
    )
