"""The producer: records are gathered into batches by partition, sent, retried and, if wished, part of transactions."""
