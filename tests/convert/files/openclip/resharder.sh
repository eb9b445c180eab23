python resharder.py -i $DOWNLOAD_DIR/shards -o /data/medium_th_85 -s medium_filter_results/medium_th_85.npy
torchrun --nproc_per_node 8 train.py --scale medium --data_dir /data/medium_th_85 --output_dir out --exp_name th_85
