"""One OpenAI-compatible endpoint in front of many experts. docs/gateway.md is its manual.

A request goes through these rooms, in this order:

    doors/guarding      who may come in
    requests/bodies     the request's JSON, every byte of it at hand
    requests/prompts    the text to route on, and what the request needs
    requests/choosing   which experts may answer, in which order
    answers/relaying    asks them one after the other until one answers, and passes the answer on
    experts/            their health, their queues, the connections to them
    records             what there is to say about it: metrics, logs and traces in observing/ read it at the end

`experts/live` holds what they work with, and swaps it in one step when the router, the experts or the settings change:

    admin/following       looks for a new router in a folder or, by `fetching`, at an address
    admin/routes          the endpoints by which experts and routers come and go; `changes` says what is possible
    admin/administration  makes one change at a time, and takes up those of other workers
    admin/fitting         works out a changed router, in a process of its own
    admin/state           what was changed, on disk

`app` puts it together as an ASGI application, `serving` runs it.
"""
