"""An archive: topics as tables in a directory, and a manifest that lists the valid batches of offsets.

    ROOT/
      archive.json                        which cluster and format, written once
      archive.lock                        held by the one process that writes
      manifest/00000000000000000007.json  batch 7: its ranges of offsets, files, rows, checksum
      manifest/checkpoint-...0128.json    what batches 0 to 127 come to
      data/topic=T/date=D/7-....parquet   rows; the number before the dash is the batch's
      dead_letters/topic=T/7-....parquet  rows whose values could not be decoded, with the reason
      staged/                             the same of a batch that does not count yet

A batch is valid when its manifest entry exists. `manifest` describes the commit of a batch, `manifest_state` the sum of
the entries; `row_table` is the table of the rows: files as above, or `delta_tables`, tables of Delta Lake in `data` and
`dead_letters`. The staged files of an interrupted run are committed or removed by the next writer (`archive.Archive`).

`description` is archive.json, `filesystems.files` writes such files. `writing` archives rounds of ranges, in tasks:
`range_rows` reads their rows, `value_formats` decodes values, `part_files` writes the files; `waves` plans rounds from
brokers, `log_rounds` from log directories. `compaction` merges small files. `reading` reads the rows, `replaying`
writes them to topics, `restoring` appends stored batches at their original offsets.
"""
