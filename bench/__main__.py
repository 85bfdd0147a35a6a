"""``python -m bench``: the side-by-side with Apache Kafka 3.9.1."""

from .side_by_side import main

raise SystemExit(main())
