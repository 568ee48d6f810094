"""The explanations on the benchmarks page; the figures come from the raw files."""

BIG_NOTES = (
    "This fits routers with a very large embedding. The embedding is synthetic, in float16 on disk. The token",
    "counts follow a Zipf-like distribution, and each expert sees two fifths of the vocabulary. No prompts are",
    "kept, so nothing is calibrated: a fit consists of the products, the solve, the scores and the table. The bare",
    "product is XᵀX in float64 over the rows that any of the experts sees. [Big embeddings](big-embeddings.md)",
    "has the formula, which the table calls the stated bound.",
)

RIVAL_NOTES = (
    "All routers get the same prompts, cuts and draws, and all were measured on two cores, beside another program.",
    "IR3DE's fit times include counting the texts. *ir3de* is the default of `Router.fit`, and *ir3de, tuned* has",
    "`tune=True`. Routers on an encoder, with their rates chosen on training texts, are in",
    "[experiments](experiments.md) and in [why not something else](why-not.md).",
)

VERSIONS_NOTES = (
    "The earlier version is commit 009fa435: the gateway before the journal, candidates and a store over the network.",
    "Both gateways have the same configuration, which uses none of these. The bar is what two equal gateways differ",
    "by, because what is switched off should cost nothing. It is reached: in the median of six starts a whole answer",
    "costs less than it did, and a stream the same within the noise. Chats of several turns have no bar: a version",
    "before conversations routed their last turn alone.",
)

SPEED_NOTES = (
    "- *route*: 1,000 different prompts of about 67 tokens. One program takes all of them, then the other, in turn,",
    "  so caches are warm for both. A program that runs after a slower one on the same core starts with cold caches",
    "  and takes longer. *Default* is the router that a fit chooses, which usually scores pairs of tokens;",
    "  *closed form* does not. Short prompts have larger ratios: their cost is fixed.",
    "- *collect, all statistics*: for a corpus over 100 MB, only 1 window in 16, chosen by the CRC-32 of its",
    "  prompt, enters the prompt sums (`--subsample auto`). The histogram always counts every token.",
    "- *fit*: PromptRidge has no aim. Its one product, S = ẼW in float32, is so small that unpacking the sums, the",
    "  solve, S in float64 and the table together take longer than it.",
    "- *published batch-wise fit*: every token's embedding goes through A += xᵀx in float32, in batches of 16 ×",
    "  1,024 tokens.",
)

GATEWAY_NOTES = (
    "Everything runs on loopback. An upstream stands in for the experts. A bare proxy with the same server and the",
    "same transport as the gateway only forwards and relays; another one has aiohttp, the usual library. The gateway",
    "has the demo's router, five experts, access log and metrics. nginx, where it is installed, shows what a proxy",
    "costs that is written in C. The requests are chats of 100 tokens, all different.",
    "",
    "*Instant upstream*: the upstream answers at once, and 64 connections ask again as soon as they have an answer.",
    "For latencies the upstream answers after 10 ms. A request costs less processor time the more of them there are,",
    "so bare proxy and gateway are compared where both are equally busy: each gets requests at the rate at which its",
    "process takes 60 % of a core. nginx gets the gateway's rate. *Added* latency is the percentile minus the",
    "upstream's own. A latency counts from the moment the request was due: at a random moment in equal intervals, or",
    "entirely at random (*random arrivals*). The proxies have one core, and load and upstream the other. The figures",
    "are medians over rounds in which the targets take turns; the raw file has the spread.",
)

GATEWAY_COSTS = (
    "The bars of the bare proxy were set when it had aiohttp, whose transport costs as much as all else that it does.",
    "With the gateway's own transport it takes about half the time, and whole answers miss the bars of throughput,",
    "processor time and median latency by far. The 99th percentile differs too much between rounds to say much. What",
    "the gateway does beside forwarding: it reads the request and the answer as JSON, routes, says who answered and",
    "why, counts and logs. Routing is a small part of that. A named key with limits costs more than all else beside",
    "forwarding, and misses its bar. Streams of 20 tokens cost about what they cost the bare proxy.",
)

LIMITS_NOTES = (
    "Each request is as heavy as the documented limits allow, or heavier: then it is refused, with status 413 or 431,",
    "which has to be cheap, too. Each is sent to a gateway of its own that has answered usual chats before. *Growth*",
    "is the highest resident memory that the kernel has seen minus the memory before. *Stall* is what others notice:",
    "another process asks `/livez` every 2 ms on a connection of its own, and the longest wait counts, minus the usual",
    "one; of three runs the one with the shortest. The multiple of the size is told for requests from 1 MB on. The",
    "idle streams have had their first token and say nothing more; their clients are another process.",
    "Some megabytes are the same whatever the size of a large request: buffers, and the thread that reads large JSON.",
)

SOAK_NOTES = (
    "A tenth of the requests are streamed, a tenth of the clients leave in the middle, and one request in twenty",
    "fails at the upstream, in six ways. Every request has an id that its answer must repeat, complete to the last",
    "token. What the clients saw is compared with the upstream's own record of every attempt. *Cut*: the upstream",
    "broke off in the middle of a stream, and the client was told. Fifty times the router's folder is replaced and",
    "`PUT /admin/router` says so. The gateway may have 512 MiB of private memory (`RLIMIT_DATA`), and the kernel's",
    "record of its highest resident memory must stay below that too.",
)

ROBUSTNESS_NOTES = (
    "The tables show routing accuracy in percent, averaged over the domains, on at most 2,000 test prompts per",
    "domain, unchanged and perturbed.",
    "",
    "- *Flipped* is the percentage of prompts that went to another expert than the unchanged prompt.",
    "- A typo swaps two letters, drops or doubles one, or replaces one by its neighbour on the keyboard.",
    "- *Mixed* appends part of a prompt of another domain. The percentage is that part of the tokens, and the first",
    "  domain is the right answer.",
    "- *Wrapped* puts the same boilerplate around each prompt, as an application's template does.",
    "- *ir3de, boilerplate in the fit* is the default, fitted on the training prompts and on up to 2,000 of them per",
    "  domain once more in that boilerplate.",
    "- The domains of banking77 and trec_qc are the labels of these sets.",
    "",
    "**Case.** A long prompt all in capitals and a prompt in random case are read in lower case. Random case is found",
    "by the capitals inside words; some short prompts in it are missed. The first table shows random case before it",
    "was read so, with the same router ([raw file](../results/robustness_before.json)).",
    "",
    "**Typos** cost little on long prompts, and much on short ones, where one word decides.",
    "",
    "**Boilerplate sends short prompts to the wrong expert.** Its tokens outnumber those of the prompt and have scores",
    "of their own. The authors' form, in which ten tokens vote, holds up better on reasoning and worse on most other",
    "suites. If you know the template, take it off before you route, in the gateway by",
    "[`routing.envelopes`](gateway.md): the route is then that of the prompt alone. Or fit on wrapped prompts beside",
    "plain ones, as in the last columns. They hold for the templates in the fit and promise nothing for others.",
)

EXPERTS_NOTES = (
    "The domains are made from real prompts. Each domain has 24 word pairs of its own, inserted at random, and 32",
    "training prompts. Routing times are the fastest of 21 rounds over 300 different prompts. Each number of",
    "experts is measured in its own process.",
)

SCALE_NOTES = (
    "- *Counting*: the corpus repeats the same texts in different orders, as JSON lines. 1 window in 16 enters the",
    "  prompt sums (*usual*), or none does. In turn, one process counts every other shard, two processes count all",
    "  shards, and Ray counts all shards. The time to start processes and load the embedding is measured with a job",
    "  of one line per worker and subtracted; so is the start of the Ray cluster. Both are in the raw file. The",
    "  process pool and Ray must give the same bits.",
    "- *Statistics file*: of the whole corpus, and with every count multiplied by 1,000.",
    "- *Peak memory*: the kernel's high-water mark. For workers, that of the largest one.",
    "- *Contributions*: each has 40 prompts, and all go to one of five experts (49,152 tokens, 832 numbers per",
    "  token). A removal fits the router again. If prompts were kept, their sample is drawn again from the other",
    "  contributions, and confidence is calibrated again. After the removals, the router must be one that never saw",
    "  the contributions; the SHA-256 of its header is compared.",
    "",
    "The bars for the statistics file and for merging were set on 15 November, when the default embedding had 576",
    "numbers per token. With 832, the matrix of prompt sums has twice as many entries: a contribution without kept",
    "prompts has 1.8 MB instead of 1.0. Reading and merging 1,000 takes 3.5 times as long as on that day; how much",
    "of that is the other machine was not measured. Three of these bars are now missed.",
)
