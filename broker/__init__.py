"""The server: listeners, dispatch, handlers, coordinators, controller, replicas, metadata and configuration."""
