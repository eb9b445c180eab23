"""Runs: a compiled spec read by one rank, in this process or by workers, with a state after every item.

    blueprint + plan + seat ─▶ Run ──▶ Reader (reading/) ──▶ items ──▶ training loop
                                │                              │
                                └───────▶ Cursor ◀── states ───┘       Cursor ◀─▶ state_dict (JSON)

In: a `Blueprint` from the compiler, a `Seat`, perhaps a saved state. Out: batches or samples, and states. There are
three ways to read a run, which differ in who calls the Reader: `Loader` (worker processes fed with tasks),
`SpecDataset` (this process), and the same dataset in the workers of a DataLoader that is not ours
(`foreign_loader`). Read `run` first, then `cursor`.
"""
