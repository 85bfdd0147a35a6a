"""Statistics and checksums over the batches and records of a partition, and the page that shows them."""
