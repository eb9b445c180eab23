"""What `wdspec bench` is made of: trials in processes of their own, and what follows from their figures.

`trial.py` reads for some seconds and counts; `spec_bench.py` says which trials there are and what they show.
"""
