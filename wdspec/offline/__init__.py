"""Shards made of shards, before training: a spec's own decoders, filters and maps, one shard out for each one in.

job ──▶ tasks, one a shard ──▶ engine (processes here, or Dask elsewhere) ──▶ outcomes ──▶ report
"""
