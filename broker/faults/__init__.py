"""Fault injection: delays, refusals, closed connections and truncated answers on demand, for tests of clients.

    gregor.fault.rule.NAME = api=Produce topic=orders delay=20ms           a dynamic broker configuration (KIP-226)
                    |
        rule_syntax.py  text to `FaultRule` and back           rule_file.py  the same from YAML, at start
                    |
          injection.py  the rules in force, and how often each one has struck (`occasions.py`: whether it is its turn)
            |       |        |
            |   disk.py    clock.py       files that are slow or full; a clock that is wrong
            |
    request_faults.py   a `Dispatcher` that delays, refuses, stalls, hangs up, cuts answers (`cut_answer.py`)
            |
    protocol/refusals.py  an error code in the right fields of any API's response (`message_places.py`: places there)

Nothing of this is loaded, and no request pays for it, unless ``gregor.fault.injection.enable=true``.
"""
