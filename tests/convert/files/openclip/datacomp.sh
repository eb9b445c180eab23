python train.py --scale small \
  --train-data $DATA_DIR/shards/{00000000..00001287}.tar --train-num-samples=12800000 \
  --val-data "/data/cc3m-val-{00..12}.tar"
