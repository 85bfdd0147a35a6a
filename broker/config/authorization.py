"""Keys of authorization: the authorizer, and what holds besides its access control lists."""

from ...security.principal import KafkaPrincipal
from .declare import boolean, integer, string
from .keys import ConfigError

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ACL_AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
"""The authorizer of clusters with ZooKeeper; its rules are those of the StandardAuthorizer, which takes its place."""
SUPER_USERS = "super.users"


class AuthorizationKeys:
    """A section of keys for authorization by access control lists (ACLs)."""

    authorizer_class_name = string(
        "",
        "Class that authorizes requests; both names mean the StandardAuthorizer. Default: every client may do"
        " everything.",
        one_of=("", STANDARD_AUTHORIZER, ACL_AUTHORIZER),
    )
    super_users = string("", "Principals that may do everything, as User:alice;User:bob, separated by semicolons.")
    allow_everyone_if_no_acl_found = boolean(
        False, "Whether every client may use a resource that no ACL matches; else only super.users may."
    )
    gregor_authorizer_cache_max_entries = integer(
        20000, "Most decisions of the authorizer in the broker's cache, which is emptied when an ACL changes.", least=1
    )


def super_users_in(text: str) -> frozenset[str]:
    """Return the principals that ``super.users`` lists.

    Raises :class:`ConfigError` for a name without a type, which Kafka refuses at start too.
    """
    named = [part.strip() for part in text.split(";") if part.strip()]
    for name in named:
        try:
            KafkaPrincipal.parse(name)
        except ValueError as error:
            raise ConfigError(f"Invalid value {text} for configuration {SUPER_USERS}: {error}") from None
    return frozenset(named)
