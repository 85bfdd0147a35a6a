"""The coordinators of consumer groups and transactions, and the internal topics that hold the state of both."""
