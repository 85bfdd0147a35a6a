"""An archive: topics as tables in a directory, and a manifest that says which batches of offsets count.

    ROOT/
      archive.json                        which cluster and format, written once
      archive.lock                        held by the one process that writes
      manifest/00000000000000000007.json  batch 7: its ranges of offsets, files, rows, checksum
      manifest/checkpoint-...0128.json    what batches 0 to 127 come to
      data/topic=T/date=D/7-....parquet   rows; the number before the dash is the batch's
      dead_letters/topic=T/7-....parquet  rows whose values could not be decoded, with the reason
      staged/                             the same of a batch that does not count yet

A batch counts when its manifest entry is there. What leads to that is said in `manifest`, and what entries come to in
`manifest_state`; `row_table` is the place where rows are: files as above, or `delta_tables`, tables of Delta Lake in
`data` and `dead_letters`. What is staged by a run that ended early is finished or removed by the next writer
(`archive.Archive`).

`description` is archive.json, `durable_files` how such files are written. `writing` puts rounds of ranges into an
archive, in tasks: `range_rows` gives them their rows, `value_formats` decodes values, `part_files` lays them out;
`waves` plans rounds from brokers, `log_rounds` from log directories. `compaction` makes few files of many. `reading`
gives back what is there, `replaying` writes it to topics, `restoring` puts stored batches where they were.
"""
