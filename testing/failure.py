"""The error of brokers that are started for tests, and how long such a broker may take."""

START_S = 30.0
STOP_S = 10.0


class BrokerFailedError(Exception):
    """A broker could not start, or did not stop; the text says why."""
