"""Authentication of clients: the security of each listener, SASL logins, credentials, and logins at other nodes."""
