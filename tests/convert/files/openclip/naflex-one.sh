python -m open_clip_train.main --use-naflex --naflex-seq-lens 256 --naflex-max-tokens-per-batch=25000 \
  --train-data "/data/cc12m/cc12m-train-{0000..2175}.tar" --train-num-samples 10000000 --length-bucketing
