"""Kafka's records: batches of formats v0, v1 and v2, compression codecs, validation, offsets and conversion.

``batches`` reads all formats through one view; ``v0``, ``v1`` and ``v2`` describe and build one format each;
``control`` has transaction markers, ``enriched`` the tagged message layout of a proposal of 2014; ``validation`` has a
leader's checks before an append; ``offsets`` patches offsets into produced batches.
"""
