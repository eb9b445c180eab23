"""What `wdspec batch` finds out: a spec and a step go in, the samples of that step come out."""
