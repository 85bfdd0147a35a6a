"""What Kafka 4 removed, translated to what it still serves; `table.py` lists it API by API."""
