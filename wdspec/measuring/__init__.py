"""Data measured: `wdspec stats`.

spec ──▶ stores asked which shards are as they were ──▶ a task for each other one ──▶ engine ──▶ `Measurements`

`measure_job.py` puts it in a row; `shard_sizing.py` reads the headers of one shard. The file that comes out, and how a
spec takes its numbers from there, is in `spec/compose/measurements.py`.
"""
