"""Where a run stands, as JSON values: made, checked, merged. Read `run_state.py` first."""
