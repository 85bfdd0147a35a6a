"""Connections to other brokers and to the controller, and the task that follows the controller's metadata log."""
