"""The models: encoders, attention functions, decoders, and the sequence-to-sequence model made of them.

Letters at the end of a tensor's name are its axes:

    B batch            N batch times beam      S source length     T target length    U = T + 1
    E embedding        M memory (encoder)      K key               Q query            H hidden
    F decoder feature  L layers                V vocabulary
"""
