"""A bounded number of open segment files."""
