"""The handlers, one module for each family of APIs: async functions from a typed request to a typed response.

A handler owns no socket and no bytes. It raises `BrokerError` only if the whole request fails; the failure of one topic
or partition is a field of the response.
"""
