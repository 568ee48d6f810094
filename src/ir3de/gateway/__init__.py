"""One OpenAI-compatible endpoint in front of many experts. docs/gateway.md is its manual.

A request goes through these rooms, in this order:

    guarding      who may come in, and how large it may be
    bodies        the request's JSON, every byte of it at hand
    prompts       the text to route on, and what the request needs
    choosing      which experts may answer, in which order
    relaying      asks them one after the other until one answers, and passes the answer on
    records       what there is to say about it: metrics, logs and traces read it at the end

`live` holds what they work with, and swaps it in one step when the router, the experts or the settings change:

    following       looks for a new router in a folder or, by `fetching`, at an address
    admin           the endpoints by which experts and routers come and go; `changes` says what is possible
    administration  makes one change at a time, and takes up those of other workers
    fitting         works out a changed router, in a process of its own
    state           what was changed, on disk
"""
