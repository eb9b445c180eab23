import litdata as ld

dataset = ld.StreamingDataset("s3://my-bucket/my-data", subsample=0.01, shuffle=True)
