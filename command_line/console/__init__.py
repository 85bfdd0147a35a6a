"""The web console, ``gregor.console.listeners``: pages about topics, records, groups, clients and faults.

The console is a client of its cluster: it reads and changes the cluster with the admin client, over the Kafka port. So
it works with every broker of a cluster, obeys ACLs, and `gregor console` runs it for any Kafka cluster. In the process
of a broker it also reads this broker's counters, for the plots and the cost of conversion.

Pages are HTML from Jinja templates and need no JavaScript; one small script refreshes plots. Everything is in this
package: a browser loads nothing from other hosts. A page's memory is bounded: lists are cut into pages, record batches
are read up to ``gregor.console.max.batch.bytes``, and keys and values are cut to an excerpt.

listener.py     the listener, and the connections to the cluster; settings.py
site.py         paths, templates, forms; *_pages.py are the pages by subject
browsing.py     which records a page shows; records.py reads them, values.py and avro_schemas.py show them as text
history.py      samples of the broker's counters; plots.py draws them
"""
