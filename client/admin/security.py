"""Access control lists, SCRAM credentials and delegation tokens."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from ...protocol.acls import AclOperation, AclPermission, AclResourceType, PatternType
from ...protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ...protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from ...protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from ...protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from ...protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from ...protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from ...protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from ...protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from ...protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from .base import AdminBase, raise_for

Principal = tuple[str, str]
"""A type and a name: ("User", "alice")."""

MIN_ITERATIONS = 4096
SALT_BYTES = 16


@dataclass(frozen=True, slots=True)
class AclBinding:
    """An ACL: a principal (`User:alice`, from a host or "*"), an operation, a resource, and allow or deny."""

    resource_type: AclResourceType
    resource_name: str
    principal: str
    operation: AclOperation
    permission: AclPermission = AclPermission.ALLOW
    host: str = "*"
    pattern_type: PatternType = PatternType.LITERAL


@dataclass(frozen=True, slots=True)
class AclFilter:
    """A filter of ACLs; the defaults match all."""

    resource_type: AclResourceType = AclResourceType.ANY
    resource_name: str | None = None
    principal: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY
    host: str | None = None
    pattern_type: PatternType = PatternType.ANY


class ScramMechanism(IntEnum):
    """The hash of a SCRAM credential (KIP-554)."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def hash_name(self) -> str:
        """The name of the hash in hashlib."""
        return "sha256" if self is ScramMechanism.SCRAM_SHA_256 else "sha512"


@dataclass(frozen=True, slots=True)
class ScramUpsertion:
    """A new password of a user; only values derived from it are sent. `salt` is random by default."""

    user: str
    mechanism: ScramMechanism
    password: bytes = field(repr=False)
    iterations: int = MIN_ITERATIONS
    salt: bytes | None = None


class SecurityAdmin(AdminBase):
    """The methods of the admin client for security. Brokers without an authorizer refuse them: SECURITY_DISABLED."""

    # --- ACLs ---

    async def describe_acls(self, wanted: AclFilter = AclFilter()) -> list[AclBinding]:
        """Return the ACLs that match."""
        request = DescribeAclsRequest()
        _put_filter(request, wanted)
        answer = await self.ask_any(request, DescribeAclsResponse)
        raise_for(answer.error_code, answer.error_message)
        return [_binding(resource, acl) for resource in answer.resources for acl in resource.acls]

    async def create_acls(self, bindings: Iterable[AclBinding]) -> None:
        """Add ACLs."""
        request = CreateAclsRequest(
            creations=[
                AclCreation(
                    resource_type=acl.resource_type,
                    resource_name=acl.resource_name,
                    resource_pattern_type=acl.pattern_type,
                    principal=acl.principal,
                    host=acl.host,
                    operation=acl.operation,
                    permission_type=acl.permission,
                )
                for acl in bindings
            ]
        )
        answer = await self.ask_controller(request, CreateAclsResponse)
        for result in answer.results:
            raise_for(result.error_code, result.error_message)

    async def delete_acls(self, filters: Iterable[AclFilter]) -> list[AclBinding]:
        """Delete the ACLs that match any of `filters`, and return them."""
        request = DeleteAclsRequest()
        for wanted in filters:
            meant = DeleteAclsFilter()
            _put_filter(meant, wanted)
            request.filters.append(meant)
        answer = await self.ask_controller(request, DeleteAclsResponse)
        removed = []
        for result in answer.filter_results:
            raise_for(result.error_code, result.error_message)
            for acl in result.matching_acls:
                raise_for(acl.error_code, acl.error_message)
                removed.append(_binding(acl, acl))
        return removed

    # --- SCRAM ---

    async def describe_scram_credentials(self, users: Iterable[str] | None = None) -> dict[str, list[CredentialInfo]]:
        """Return the mechanisms and iterations of these users, or of all users with credentials."""
        request = DescribeUserScramCredentialsRequest(
            users=None if users is None else [UserName(name=user) for user in users]
        )
        answer = await self.ask_any(request, DescribeUserScramCredentialsResponse)
        raise_for(answer.error_code, answer.error_message)
        for result in answer.results:
            raise_for(result.error_code, result.error_message or result.user)
        return {result.user: result.credential_infos for result in answer.results}

    async def alter_scram_credentials(
        self,
        upsertions: Iterable[ScramUpsertion] = (),
        deletions: Iterable[tuple[str, ScramMechanism]] = (),
    ) -> None:
        """Set passwords and delete credentials."""
        request = AlterUserScramCredentialsRequest(
            upsertions=[_salted(upsertion) for upsertion in upsertions],
            deletions=[ScramCredentialDeletion(name=user, mechanism=kind) for user, kind in deletions],
        )
        answer = await self.ask_controller(request, AlterUserScramCredentialsResponse)
        for result in answer.results:
            raise_for(result.error_code, result.error_message or result.user)

    # --- delegation tokens (KIP-48) ---

    async def create_delegation_token(
        self, *, renewers: Sequence[Principal] = (), max_lifetime_ms: int = -1, owner: Principal | None = None
    ) -> CreateDelegationTokenResponse:
        """Create a token for this client's user, or for `owner` (KIP-373)."""
        request = CreateDelegationTokenRequest(
            renewers=[CreatableRenewers(principal_type=kind, principal_name=name) for kind, name in renewers],
            max_lifetime_ms=max_lifetime_ms,
        )
        if owner is not None:
            request.owner_principal_type, request.owner_principal_name = owner
        answer = await self.ask_controller(request, CreateDelegationTokenResponse)
        raise_for(answer.error_code, "CreateDelegationToken")
        return answer

    async def renew_delegation_token(self, hmac: bytes, *, renew_period_ms: int = -1) -> int:
        """Renew a token; return its expiry time, in milliseconds since the epoch."""
        request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=renew_period_ms)
        answer = await self.ask_controller(request, RenewDelegationTokenResponse)
        raise_for(answer.error_code, "RenewDelegationToken")
        return answer.expiry_timestamp_ms

    async def expire_delegation_token(self, hmac: bytes, *, expiry_period_ms: int = -1) -> int:
        """Expire a token after that time (negative: now); return its expiry time, in milliseconds since the epoch."""
        request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=expiry_period_ms)
        answer = await self.ask_controller(request, ExpireDelegationTokenResponse)
        raise_for(answer.error_code, "ExpireDelegationToken")
        return answer.expiry_timestamp_ms

    async def describe_delegation_tokens(
        self, owners: Iterable[Principal] | None = None
    ) -> list[DescribedDelegationToken]:
        """Return the tokens of these owners, or all tokens that this client may describe."""
        wanted = None
        if owners is not None:
            wanted = [DescribeDelegationTokenOwner(principal_type=kind, principal_name=name) for kind, name in owners]
        answer = await self.ask_any(DescribeDelegationTokenRequest(owners=wanted), DescribeDelegationTokenResponse)
        raise_for(answer.error_code, "DescribeDelegationToken")
        return answer.tokens


def _put_filter(request: DescribeAclsRequest | DeleteAclsFilter, wanted: AclFilter) -> None:
    request.resource_type_filter = wanted.resource_type
    request.resource_name_filter = wanted.resource_name
    request.pattern_type_filter = wanted.pattern_type
    request.principal_filter = wanted.principal
    request.host_filter = wanted.host
    request.operation = wanted.operation
    request.permission_type = wanted.permission


def _binding(
    resource: DescribeAclsResource | DeleteAclsMatchingAcl, acl: AclDescription | DeleteAclsMatchingAcl
) -> AclBinding:
    """Convert an ACL of an answer: separate from its resource in DescribeAcls, in one structure with it in
    DeleteAcls.
    """
    return AclBinding(
        AclResourceType(resource.resource_type),
        resource.resource_name,
        acl.principal,
        AclOperation(acl.operation),
        AclPermission(acl.permission_type),
        acl.host,
        PatternType(resource.pattern_type),
    )


def _salted(upsertion: ScramUpsertion) -> ScramCredentialUpsertion:
    """Return RFC 5802's SaltedPassword, with its salt."""
    salt = os.urandom(SALT_BYTES) if upsertion.salt is None else upsertion.salt
    salted = hashlib.pbkdf2_hmac(upsertion.mechanism.hash_name, upsertion.password, salt, upsertion.iterations)
    return ScramCredentialUpsertion(
        name=upsertion.user,
        mechanism=upsertion.mechanism,
        iterations=upsertion.iterations,
        salt=salt,
        salted_password=salted,
    )
