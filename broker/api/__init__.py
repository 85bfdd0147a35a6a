"""From a frame to an answer: the table of APIs, the dispatcher, and what all handlers share."""
