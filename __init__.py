"""Gregor: a Kafka broker for every client from 0.8 to 4.x.

The rooms: ``protocol`` (bytes and values), ``storage`` (one partition's log on disk), ``broker`` (the server),
``client`` (a trio-native producer, consumer and admin client). ``docs/architecture.md`` has the map.
"""

__version__ = "0.1.0"
