"""The way of a request through the gateway, stage by stage, in this order.

    accept    the host, the origin and the key of the client        Accepted
    read      the body within its limits, and the prompt            Received
    choose    the experts that may answer, and which comes first    Chosen
    ask       one after the other, until an answer begins           Answered
    relay     the answer to the client, whole or as a stream        Relayed
    run       calls them, and records what happened, once, at the end

Each stage is a function from one value to the next. `values` has these values; only `Progress` changes on the way.
`choice` has the rule for who may answer, `attempt` sends a request to one expert. What only some requests need has
files of its own: `passthrough`, `cache`, `charge` and `call_hooks`.

No modules import each other. From the lowest one: choice, values, relay, call_hooks, accept, read, charge, choose,
attempt, cache, ask, run, passthrough.

Only the client that disconnects cancels the task of a request from outside, or the server that stops.
"""
