"""From a data set to batches: corpora of plain text, tokenizers, the cache, and the plan of an epoch."""
