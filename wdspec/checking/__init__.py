"""Data looked at before it is trained on: `wdspec check`.

spec ──▶ one task a shard ──▶ engine (processes here, or Dask) ──▶ facts and problems of each ──▶ judgements ──▶ report

`shards/` looks at one shard, `judgements/` compares what all showed; read `check_job.py` first.
"""
