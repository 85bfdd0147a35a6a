"""What a fetch needs behind its handler: sessions, reading, waiting, and conversion for clients of other formats."""
