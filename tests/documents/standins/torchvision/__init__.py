"""A replacement for torchvision if it is not installed: its wheels fit only one build of torch."""
