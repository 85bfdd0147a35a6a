"""The ACLs of a cluster, found by resource and by principal without reading the others.

A resource is matched by at most one literal pattern, the wildcard, and one prefixed pattern for each length that
prefixed patterns have. Within a pattern, ACLs are found by principal and host. So the cost of a look-up depends neither
on the number of ACLs nor on the number of principals.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from ...protocol.acls import WILDCARD, WILDCARD_PRINCIPAL, AclOperation, AclPermission, AclResourceType, PatternType
from .acl import Acl

Subject = tuple[str, str]
"""A principal as text, and a host."""
_Pattern = tuple[AclResourceType, PatternType, str]
_Entries = defaultdict[Subject, dict[Acl, None]]
"""ACLs by principal and host, in the order in which they were added."""


def _entries() -> _Entries:
    return defaultdict(dict)


class AclIndex:
    """A set of ACLs that finds those for a principal, its host and a resource."""

    def __init__(self) -> None:
        self._by_pattern: defaultdict[_Pattern, _Entries] = defaultdict(_entries)
        self._by_type: defaultdict[AclResourceType, _Entries] = defaultdict(_entries)
        self._prefix_lengths: defaultdict[AclResourceType, Counter[int]] = defaultdict(Counter)
        """The number of prefixed patterns of each length."""

    def __contains__(self, acl: Acl) -> bool:
        entries = self._by_pattern.get(_pattern_of(acl))
        return entries is not None and acl in entries.get((acl.principal, acl.host), ())

    def add(self, acl: Acl) -> None:
        """Add an ACL."""
        pattern = _pattern_of(acl)
        if pattern not in self._by_pattern and acl.pattern_type is PatternType.PREFIXED:
            self._prefix_lengths[acl.resource_type][len(acl.resource_name)] += 1
        subject = (acl.principal, acl.host)
        self._by_pattern[pattern][subject][acl] = None
        self._by_type[acl.resource_type][subject][acl] = None

    def remove(self, acl: Acl) -> None:
        """Remove an ACL; do nothing if it is not in the set."""
        pattern = _pattern_of(acl)
        if pattern not in self._by_pattern:
            return
        subject = (acl.principal, acl.host)
        for entries in (self._by_pattern[pattern], self._by_type[acl.resource_type]):
            entries[subject].pop(acl, None)
            if not entries[subject]:
                del entries[subject]
        if not self._by_pattern[pattern]:
            del self._by_pattern[pattern]
            if acl.pattern_type is PatternType.PREFIXED:
                lengths = self._prefix_lengths[acl.resource_type]
                lengths[len(acl.resource_name)] -= 1
                if not lengths[len(acl.resource_name)]:
                    del lengths[len(acl.resource_name)]

    def matching(self, resource_type: AclResourceType, name: str) -> list[_Entries]:
        """Return the ACLs of all patterns that match a resource, by principal and host."""
        found = (self._by_pattern.get(pattern) for pattern in self._patterns(resource_type, name))
        return [entries for entries in found if entries is not None]

    def _patterns(self, resource_type: AclResourceType, name: str) -> Iterator[_Pattern]:
        yield resource_type, PatternType.LITERAL, name
        if name != WILDCARD:
            yield resource_type, PatternType.LITERAL, WILDCARD
        for length in self._prefix_lengths.get(resource_type, ()):
            if length <= len(name):
                yield resource_type, PatternType.PREFIXED, name[:length]

    def may_do_with_any(self, operation: AclOperation, resource_type: AclResourceType, subject: Subject) -> bool:
        """Return whether a principal has a permission for some resource of a type that no denial covers entirely.

        Source: Kafka `Authorizer.authorizeByResourceType` (KIP-679). Implied operations do not count there.
        """
        of_type = self._by_type.get(resource_type)
        if of_type is None:
            return False
        allowed: list[Acl] = []
        denied: set[tuple[PatternType, str]] = set()
        for acl in for_subject([of_type], subject):
            if acl.operation not in (operation, AclOperation.ALL):
                continue
            if acl.permission is AclPermission.ALLOW:
                allowed.append(acl)
            elif acl.permission is AclPermission.DENY:
                denied.add((acl.pattern_type, acl.resource_name))
        if (PatternType.LITERAL, WILDCARD) in denied:
            return False
        return any(not _is_denied_entirely(acl, denied) for acl in allowed)


def for_subject(found: Iterable[_Entries], subject: Subject) -> Iterator[Acl]:
    """Yield the ACLs for a principal from a host, those for every principal or every host included."""
    principal, host = subject
    for entries in found:
        for wanted in (
            (principal, host),
            (principal, WILDCARD),
            (WILDCARD_PRINCIPAL, host),
            (WILDCARD_PRINCIPAL, WILDCARD),
        ):
            yield from entries.get(wanted, ())


def _pattern_of(acl: Acl) -> _Pattern:
    return acl.resource_type, acl.pattern_type, acl.resource_name


def _is_denied_entirely(acl: Acl, denied: set[tuple[PatternType, str]]) -> bool:
    """Return whether a denial covers all resources of a permission's pattern."""
    is_literal = acl.pattern_type is PatternType.LITERAL
    if is_literal and acl.resource_name == WILDCARD:
        return False
    if is_literal and (PatternType.LITERAL, acl.resource_name) in denied:
        return True
    prefixes = (acl.resource_name[:length] for length in range(1, len(acl.resource_name) + 1))
    return any((PatternType.PREFIXED, prefix) in denied for prefix in prefixes)
