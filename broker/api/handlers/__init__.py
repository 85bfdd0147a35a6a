"""One module for each family of APIs: async functions from a typed request to a typed response.

A handler owns no socket and no bytes. It raises `BrokerError` only where the whole request fails; what fails for one
topic or partition is a field of the response.
"""
