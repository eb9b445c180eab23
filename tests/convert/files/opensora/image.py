dataset = dict(type="video_text", transform_name="resize_crop")  # noqa: C408
bucket_config = {
    "256px": {1: (1.0, 50)},
    "768px": {1: (0.5, 11)},
    "1024px": {1: (0.5, 7)},
}
num_workers = 12
seed = 42
