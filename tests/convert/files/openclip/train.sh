#!/bin/bash
#SBATCH --nodes=4
torchrun --nproc_per_node 8 -m open_clip_train.main \
    --train-data "/data/LAION-400M/{00000..41455}.tar::/data/cc12m/cc12m-train-{0000..2175}.tar" \
    --train-data-upsampling-factors=1::2 \
    --dataset-type webdataset \
    --dataset-resampled \
    --train-num-samples 135646078 \
    --batch-size 320 \
    --workers 4 \
    --seed 3 \
    --model ViT-B-32
