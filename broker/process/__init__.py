"""The common parts of a serving process, broker or gateway: log, signals, memory, exit status."""
