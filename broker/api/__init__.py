"""From a request frame to its answer: the table of APIs, the dispatcher, and what all handlers share."""
