"""Stands in for torchvision where it is not installed: its wheels fit one build of torch only."""
