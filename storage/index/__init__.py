"""The index of a segment and the look-ups that use it: by offset, by time, by transaction."""
