"""`python -m seq2seq_lab.generate` is now `python -m seq2seq_lab.predict`."""

import sys

from seq2seq_lab.renamed import print_new_command

OPTIONS = {"--score": "--log-probs", "--continue": "-"}

if __name__ == "__main__":
    reads = not OPTIONS.keys().isdisjoint(sys.argv) or "--count" in " ".join(sys.argv)
    print_new_command("generate", "predict", OPTIONS, "" if reads else "--count 10")
