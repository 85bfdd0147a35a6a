"""Fetched records on their way from a broker upstream to a client: as they are, or converted for old consumers."""
