"""`python -m benchmarks`: wdspec beside its peers on the same bytes. The other scripts are run by themselves."""
