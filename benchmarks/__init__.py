"""`python -m benchmarks` compares wdspec with other loaders on the same bytes. Run the other scripts separately."""
