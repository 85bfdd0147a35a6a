"""An archive: topics as Parquet files in a directory, and a manifest that says which of the files count.

    ROOT/
      archive.json                        which cluster and format, written once
      archive.lock                        held by the one process that writes
      manifest/00000000000000000007.json  batch 7: its ranges of offsets, files, rows, checksum
      data/topic=T/date=D/7-....parquet   rows; the number before the dash is the batch's
      dead_letters/...                    rows that could not be decoded, laid out alike

A batch counts when its manifest entry is there, which one rename decides. Files of batches without an entry are
leftovers of a run that ended early; the next writer removes them (`manifest.Manifest.sweep`).
"""
