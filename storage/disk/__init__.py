"""Files, directories and their names: everything that storage asks of a file system."""
