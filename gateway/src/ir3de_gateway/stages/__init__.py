"""The way of a request through the gateway: one file for each stage, in this order.

    accept    the host, the origin and the key of the client        Accepted
    read      the body within its limits, and the prompt            Received
    choose    the experts that may answer, and which comes first    Chosen
    ask       one after the other, until an answer begins           Answered
    relay     the answer to the client, whole or as a stream        Relayed
    record    what happened, once, at the end

`run` calls them. Each stage is a function from one value to the next; only `Progress` (see `record`) changes on the
way. What only some requests need has files of its own: `passthrough`, `ask_replicas`, `cache`, `charge` and
`call_hooks`.

Only the client that disconnects cancels the task of a request from outside, or the server that stops.
"""
