"""Runs: a planned spec, read by one rank in this process or by workers, with a state after every item.

    spec + shards + plan + seat ─▶ Run ──▶ Steps ──▶ items ──▶ training loop
                                    │        │
                                    └─▶ Stream (moves a Position) ◀─▶ state_dict (JSON)

`Steps` gets the items in one of four ways: in this process (`steps.Here`), from worker processes (`processes`), from
threads (`threads`), or from Ray actors (`actors`, which read by `remote`); workers get `tasks` and send `parcels`, or
values `out_of_band`. `Loader` and `SpecDataset` hold a `Stream`;
`SpecDataset` also works in the workers of another DataLoader (`foreign`). `position` and `state` convert a position to
JSON and back, `ranks` compares ranks and gathers their states, `stats` counts. Read `run` first, then `stream`.
"""
