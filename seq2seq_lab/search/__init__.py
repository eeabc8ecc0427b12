"""Search: generating sentences with a trained model.

Letters at the end of a tensor's name are its axes. Those that differ from `models`:

    A unfinished sentences    K hypotheses of a sentence    N = A · K rows
    F outputs kept            C candidates for a token
"""
