"""Every request, response and stored record of Kafka's protocol, one module per API, in the words of `schema.py`.

The versions reach from 0 to the newest that Kafka 3.9 or 4.x knows; which of them a broker serves is its own choice.
Sources: the message schemas of Apache Kafka 3.9.1, and of 4.x for the versions after those. A module is imported when
its API is first needed (`apis.py`).
"""
