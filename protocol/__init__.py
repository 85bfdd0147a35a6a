"""Bytes and values, sans-IO: messages, the versioned codec, error codes, record formats."""
