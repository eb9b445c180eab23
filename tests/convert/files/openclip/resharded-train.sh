python datacomp/resharder.py -i /datasets/commonpool/shards \
  -o /app/output/shards -s /app/output/subset.npy
python -m open_clip_train.main --train-data '/app/output/shards/{00000000..00001287}.tar::/data/cc3m-{00..12}.tar' \
  --train-data-upsampling-factors 1::10 --train-num-samples=12800000
