accelerate launch --num_processes 8 \
    open_instruct/dpo_tune_cache.py \
    --exp_name $EXP_NAME \
    --dataset_mixer_list allenai/olmo-3-preference-mix-deltas 1000 \
        allenai/dpo-yolo1-200k-gpt4.1-2w2s-maxdelta 1.0 \
    --dataset_mixer_list_splits train \
    --max_seq_length 16384 \
    --learning_rate 1e-6
