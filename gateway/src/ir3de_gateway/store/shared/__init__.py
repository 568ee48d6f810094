"""The store that several machines share: Redis or Valkey, through redis-py.

    P:format            the version of this layout
    P:key:{HASH}:…      limits of a client's key: numbers, requests in flight, totals by expert
    P:pin:HASH          a pin
    P:admin:…           what /admin changed, its versions and its history

P is `state.prefix`. All keys of one client's key are in one slot of a cluster.
"""
