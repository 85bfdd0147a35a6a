"""Generated topics that are the same in every run."""
