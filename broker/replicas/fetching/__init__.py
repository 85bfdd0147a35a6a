"""The parts behind the Fetch handler: fetch sessions, reading, delayed fetches, and conversion of record formats."""
