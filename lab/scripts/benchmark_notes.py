"""What the benchmarks page says of its figures, besides the figures."""

BIG_NOTES = (
    "A made-up embedding in float16 on disk, and Zipf-like counts in which each expert sees two fifths of the",
    "vocabulary. No prompts are kept, so nothing is calibrated: products, solve, scores and table are all there is.",
    "The bare product is XᵀX in float64 over the rows that any of the experts sees.",
    "[Big embeddings](big-embeddings.md) states the bound.",
)

RIVAL_NOTES = (
    "The same prompts, cuts and draws for all. *Encoder* is all-MiniLM-L6-v2. Rows marked ¹ were measured on an",
    "accelerator (the raw file says which), all others on two cores: times are not comparable between the two kinds,",
    "accuracies are. IR3DE's seconds include counting the texts.",
    "The rows of TF-IDF on clm and clm_large are of words and pairs of words; since then words alone are counted where",
    "the texts are that long, in a fifth of the time (results/README.md has that form).",
)

SPEED_NOTES = (
    "- *route*: 1,000 different prompts of about 67 tokens, all by one and then all by the other, in turn, so caches",
    "  are warm for both. Whichever of the two follows a slower program on the same core starts cold and takes longer.",
    "- *collect, all statistics*: on a corpus over 100 MB only 1 window in 16, chosen by the CRC-32 of its prompt,",
    "  enters the prompt sums (`--sample auto`); the histogram always counts every token.",
    "- *fit*: PromptRidge has no bar: its one product, S = ẼW in float32, is so small that unpacking the sums, the",
    "  solve, S in float64 and the table take several times as long together.",
    "- *published batch-wise fit*: every token's embedding through A += xᵀx in float32, batches of 16 × 1,024 tokens.",
)

ACCURACY_NOTES = (
    "How many test prompts reach their expert, in percent, averaged over the domains; only training prompts are",
    "fitted. *Other sources*: prompts of the same domains from data sets the fit never saw. *First 32 tokens*: the",
    "same test prompts, cut. The suites are public texts laid out as `{suite}/{domain}/{train,test,ood}.jsonl`, and",
    "any folder laid out so can be measured. The paper's curve over k, rising and then falling, is in the rows",
    "`k=1` to `k=500`.",
)

ROBUSTNESS_NOTES = (
    "Routing accuracy in percent, the mean over the domains, on at most 2,000 test prompts of each, as they are and",
    "perturbed. *Flipped*: prompts in percent that went elsewhere than when untouched. A typo swaps two letters, drops",
    "or doubles one, or hits its neighbour on the keyboard. *Mixed*: part of another domain's prompt follows, so many",
    "percent of the tokens; right is the first domain. A long prompt all in capitals is read in small letters.",
    "**Random case is where both routers fail**: its tokens are others, which hardly any training prompt shows.",
)

EXPERTS_NOTES = (
    "Domains made from real prompts, each with 24 word pairs of its own strewn in; 32 training prompts a domain. Times",
    "of routing are the fastest of 21 rounds over 300 different prompts. Each number of experts has a process of its",
    "own.",
)

SCALE_NOTES = (
    "- *Counting*: the same texts again and again in other orders, as JSON lines; 1 window in 16 in the prompt sums",
    "  (*usual*), or none. One process counts every other shard, two count all, Ray counts all; by turns. Starting",
    "  processes and loading the embedding is measured by a job of a line for each worker, taken off, and in the raw",
    "  file; so is the start of the Ray cluster. Pool and Ray must give the same bits.",
    "- *Statistics file*: of the whole corpus, and with every count multiplied.",
    "- *Peak memory* is the kernel's high-water mark; of workers, the largest one's.",
    "- *Contributions*: of 40 prompts each, all to one of five experts (49,152 tokens, 576 numbers a token). Removing",
    "  fits the router anew; where prompts were kept, their sample is drawn anew from everybody else's, and confidence",
    "  calibrated anew. The router after the removals must be, by the SHA-256 of its header, one that never saw them.",
)
