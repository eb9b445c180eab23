from megatron.energon import get_train_dataset
from megatron.training import get_args


def provide(task_encoder):
    args = get_args()
    return get_train_dataset(
        args.data_path[0],
        batch_size=args.micro_batch_size,
        task_encoder=task_encoder,
        packing_buffer_size=100,
        shuffle_buffer_size=1000,
        image_decode="pil",
    )
