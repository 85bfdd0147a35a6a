"""An archive: topics as Parquet files in a directory, and a manifest that says which of the files count.

    ROOT/
      archive.json                        which cluster and format, written once
      archive.lock                        held by the one process that writes
      manifest/00000000000000000007.json  batch 7: its ranges of offsets, files, rows, checksum
      data/topic=T/date=D/7-....parquet   rows; the number before the dash is the batch's
      dead_letters/topic=T/7-....parquet  rows whose values could not be decoded, with the reason

A batch counts when its manifest entry is there, which one rename decides. Files of batches without an entry are
leftovers of a run that ended early; the next writer removes them (`manifest.Manifest.sweep`).

`description` is archive.json. `writing` puts rounds of ranges into an archive, in tasks: `range_rows` gives them their
rows, `value_formats` decodes values, `part_files` lays them out; `waves` plans rounds from brokers, `log_rounds` from
log directories. `compaction` makes few files of many. `reading` gives back what is there, `replaying` writes it to
topics, `restoring` puts stored batches where they were.
"""
