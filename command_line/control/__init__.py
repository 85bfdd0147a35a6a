"""The control port (`gregor.control.listeners`): what `gregor.testing` offers to Python, for tests in any language.

listener.py     the HTTP listener, and the table of paths and methods
actions.py      topics, records, faults, clock, reset: through an admin client and a producer of this broker
states.py       named snapshots, which are saved and loaded while the broker restarts within its process
"""
