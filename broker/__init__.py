"""The server: listeners, dispatch, one module per API family, coordinators, configuration, command line."""
