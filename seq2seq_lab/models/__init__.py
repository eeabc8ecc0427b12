"""Models: encoders, attention functions, decoders and readouts, and the sequence-to-sequence model built from them.

Letters at the end of a tensor's name are its axes:

    B batch            N batch times beam      S source length     T target length     U = T + 1
    E embedding        M encoder output        K key               Q query             H hidden
    F decoder feature  L layers                V vocabulary        A attention heads   D size of a head
    G gates (H to 4H)  P earlier positions     C classes
"""
