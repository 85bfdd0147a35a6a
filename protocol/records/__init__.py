"""Records as Kafka keeps them: batches of format v0, v1 and v2, their codecs, their checks on append, their offsets.

``batches`` reads any of them through one view; ``v0``, ``v1`` and ``v2`` say what each looks like and build it;
``control`` has the broker's own markers, ``enriched`` the tagged message layout of a proposal of 2014;
``validation`` is what a leader checks before it appends; ``offsets`` patches a log's offsets into what was produced.
"""
