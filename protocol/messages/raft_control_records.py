"""Values of the other control records of a Raft partition.

Types 3 and 4 are the first and last record of a snapshot (KIP-630), types 5 and 6 the version of the Raft protocol and
the voters (KIP-853).
"""

from __future__ import annotations

from ..schema import NO_UUID, BrokerId, Int16, Int64, Message, String, Struct, Uint16, Uuid


class SnapshotHeaderRecord(Message, versions="0", flexible="0+"):
    version: Int16 = 0
    last_contained_log_timestamp: Int64 = 0


class SnapshotFooterRecord(Message, versions="0", flexible="0+"):
    version: Int16 = 0


class KRaftVersionRecord(Message, versions="0", flexible="0+"):
    version: Int16 = 0
    kraft_version: Int16 = 0


class Endpoint(Struct):
    name: String = ""
    host: String = ""
    port: Uint16 = 0


class KRaftVersionFeature(Struct):
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


class Voter(Struct):
    voter_id: BrokerId = 0
    voter_directory_id: Uuid = NO_UUID
    endpoints: list[Endpoint] = []
    kraft_version_feature: KRaftVersionFeature = KRaftVersionFeature()


class VotersRecord(Message, versions="0", flexible="0+"):
    version: Int16 = 0
    voters: list[Voter] = []
