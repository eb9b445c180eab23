"""Shares: every source of a list states its own in the same way, and they add up."""
