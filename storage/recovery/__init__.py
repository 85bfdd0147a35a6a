"""Opening a log and bringing its files into agreement after a crash; verification without changes."""
