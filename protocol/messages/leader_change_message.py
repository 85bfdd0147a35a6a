"""The value of the control record that a new leader of a Raft partition writes first (KIP-595, type 2)."""

from __future__ import annotations

from typing import Annotated

from ..schema import NO_UUID, BrokerId, Int16, Int32, Message, Struct, Uuid, Versions


class Voter(Struct):
    voter_id: Int32 = 0
    voter_directory_id: Annotated[Uuid, Versions("1+")] = NO_UUID


class LeaderChangeMessage(Message, versions="0-1", flexible="0+"):
    version: Int16 = 0
    leader_id: BrokerId = 0
    voters: list[Voter] = []
    granting_voters: list[Voter] = []
