"""What is done to samples on their way to a batch: the functions that `map` names, and what `batch` says."""
