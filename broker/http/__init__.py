"""HTTP listeners, for metrics and for any other room that answers HTTP: h11 parses, this room bounds and answers.

A room that answers HTTP gives an `HttpListener` the configuration key, its addresses and a handler, which is an async
function from an `HttpRequest` to an `HttpResponse`. It opens the listener at the start and runs it in a nursery::

    listener = HttpListener("gregor.metrics.listener", [address], answer, HttpLimits.of(config))
    nursery.start_soon(listener.run)

Each listener has at most `gregor.http.max.connections` connections. A listener that changes anything, or shows
data, is given ``names=()``, or the names of its host: then requests by DNS rebinding and from pages of other sites are
refused. Import this room only when such a listener is configured: a broker without one does not load h11.
"""
