"""Authorization by access control lists (ACLs), with the rules of Kafka's `StandardAuthorizer`.

`acl.py` is one ACL, `acl_index.py` finds the ACLs that concern a request, `standard_authorizer.py` decides and writes
the audit log, and `acl_changes.py` validates what administrators add and remove.
"""
