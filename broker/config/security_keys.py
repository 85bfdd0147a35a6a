"""Keys of TLS, SASL and delegation tokens. Each may be set for one listener, as ``listener.name.NAME.KEY``."""

from .declare import (
    PER_BROKER,
    boolean,
    integer,
    long,
    optional_class,
    optional_integer,
    optional_string,
    optional_words,
    password,
    string,
    words,
)

OWN_CALLBACK_HANDLERS = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler",
    "org.apache.kafka.common.security.scram.internals.ScramServerCallbackHandler",
    "org.apache.kafka.common.security.plain.internals.PlainServerCallbackHandler",
)
"""Kafka's own classes of ``sasl.server.callback.handler.class``, which Gregor does the work of."""


class SecurityKeys:
    """A section of keys for encryption and authentication."""

    security_inter_broker_protocol = string(
        "PLAINTEXT",
        "Security protocol between brokers; inter.broker.listener.name chooses a listener instead.",
        one_of=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    )
    ssl_keystore_type = string(
        "JKS", "Format of the keystore: PEM or PKCS12; a JKS store must be converted.", update=PER_BROKER
    )
    ssl_keystore_location = optional_string("File with the private key and the certificate chain.", update=PER_BROKER)
    ssl_keystore_password = password("Password of the keystore; PEM has none.", update=PER_BROKER)
    ssl_keystore_key = password("Private key itself, in PEM format, instead of a file.", update=PER_BROKER)
    ssl_keystore_certificate_chain = password(
        "Certificate chain for ssl.keystore.key, in PEM format.", update=PER_BROKER
    )
    ssl_key_password = password("Password of the private key, if it is encrypted.", update=PER_BROKER)
    ssl_truststore_type = string(
        "JKS", "Format of the truststore: PEM or PKCS12; a JKS store must be converted.", update=PER_BROKER
    )
    ssl_truststore_location = optional_string(
        "File with trusted certificates; default: those of the operating system.", update=PER_BROKER
    )
    ssl_truststore_password = password("Password of the truststore; PEM has none.", update=PER_BROKER)
    ssl_truststore_certificates = password("Trusted certificates themselves, in PEM format.", update=PER_BROKER)
    ssl_client_auth = string(
        "none",
        "Whether clients of an SSL listener need a certificate: required, requested, none.",
        one_of=("required", "requested", "none"),
        update=PER_BROKER,
    )
    ssl_principal_mapping_rules = string(
        "DEFAULT", "Rules, as RULE:pattern/replacement/[LU], from a certificate's subject to a user's name."
    )
    ssl_enabled_protocols = words(("TLSv1.2", "TLSv1.3"), "Versions of TLS that are offered.", update=PER_BROKER)
    ssl_protocol = string("TLSv1.3", "Newest version of TLS; ssl.enabled.protocols prevails.", update=PER_BROKER)
    ssl_cipher_suites = words((), "Cipher suites that are offered; default: OpenSSL's choice.", update=PER_BROKER)
    ssl_endpoint_identification_algorithm = string(
        "https",
        "How this broker, as a client, checks the host name of another broker: https, or empty for no check.",
        update=PER_BROKER,
    )
    ssl_allow_dn_changes = boolean(False, "Whether a new keystore may have another subject than the present one.")
    ssl_allow_san_changes = boolean(False, "Whether a new keystore may lack alternative names of the present one.")
    sasl_enabled_mechanisms = words(
        ("GSSAPI",), "SASL mechanisms of a listener; GSSAPI is not supported.", update=PER_BROKER
    )
    sasl_jaas_config = password(
        "Login module with users and passwords; for a listener as listener.name.NAME.MECHANISM.sasl.jaas.config.",
        update=PER_BROKER,
    )
    sasl_mechanism_inter_broker_protocol = string(
        "GSSAPI", "SASL mechanism with which this broker logs in to other brokers.", update=PER_BROKER
    )
    sasl_mechanism_controller_protocol = string(
        "GSSAPI", "SASL mechanism with which this broker logs in to the controller."
    )
    sasl_server_callback_handler_class = optional_class(
        "Class that checks credentials; Gregor's own check replaces Kafka's classes, and other classes are refused."
    )
    sasl_server_max_receive_size = integer(524288, "Largest request in bytes before a client has authenticated.")
    sasl_login_connect_timeout_ms = optional_integer("Milliseconds to wait for the connection to a token endpoint.")
    sasl_login_read_timeout_ms = optional_integer("Milliseconds to wait for the answer of a token endpoint.")
    sasl_oauthbearer_jwks_endpoint_url = optional_string("URL or file of the JWKS that checks signed tokens.")
    sasl_oauthbearer_jwks_endpoint_refresh_ms = long(3600000, "Milliseconds between two readings of the JWKS.")
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms = long(
        100, "Milliseconds between the first two attempts to read the JWKS."
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms = long(
        10000, "Most milliseconds between two attempts to read the JWKS."
    )
    sasl_oauthbearer_expected_audience = optional_words("Audiences, one of which a token must name.")
    sasl_oauthbearer_expected_issuer = optional_string("Issuer that a token must name.")
    sasl_oauthbearer_clock_skew_seconds = integer(30, "Seconds by which the clocks of issuers may differ.")
    sasl_oauthbearer_scope_claim_name = string("scope", "Claim of a token that has its scope.")
    sasl_oauthbearer_sub_claim_name = string("sub", "Claim of a token that has the user's name.")
    sasl_oauthbearer_token_endpoint_url = optional_string(
        "URL or file from which this broker, as a client, gets tokens."
    )
    connections_max_reauth_ms = long(
        0, "Milliseconds after which a SASL client must authenticate again (KIP-368); 0: never."
    )
    connection_failed_authentication_delay_ms = integer(
        100, "Milliseconds by which the close of a connection is delayed after a failed authentication.", least=0
    )
    delegation_token_secret_key = password("Secret of delegation tokens, the same on each node; unset: no tokens.")
    delegation_token_master_key = password("Old name of delegation.token.secret.key.")
    delegation_token_max_lifetime_ms = long(604800000, "Longest life of a delegation token in milliseconds.", least=1)
    delegation_token_expiry_time_ms = long(
        86400000, "Milliseconds for which a token is valid until it is renewed.", least=1
    )
    delegation_token_expiry_check_interval_ms = long(
        3600000, "Milliseconds between two removals of expired tokens.", least=1
    )
    gregor_authentication_timeout_ms = integer(
        30000, "Milliseconds that a client has for its TLS handshake and SASL.", least=1
    )
    gregor_max_unauthenticated_connections = integer(
        1024, "Most connections that are not authenticated yet; a new one closes the oldest.", least=1
    )
    gregor_unauthenticated_buffer_bytes = integer(
        33554432,
        "Most bytes in the receive buffers of connections that are not authenticated yet, beyond 4 kB each; "
        "the oldest connections with large buffers are closed first.",
        least=1048576,
    )
    gregor_sasl_jaas_file = optional_string(
        "File of java.security.auth.login.config, with a context KafkaServer or LISTENER.KafkaServer."
    )
