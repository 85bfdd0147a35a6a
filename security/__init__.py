"""Authentication and transport security for broker and client: principals, SASL mechanisms, TLS settings.

No module of this room waits for a socket: trio and blocking callers drive the same code.
"""
