"""Batches and epochs that can hold each other, and be shared by ranks."""
