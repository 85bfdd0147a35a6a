"""Values of records by the schemas of a registry: Avro, Protobuf and JSON Schema, as columns of a table."""
