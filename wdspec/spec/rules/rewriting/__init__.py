"""Rewrite rules that do nothing, or too much."""
