"""`python -m seq2seq_lab.dashboard` is now `python -m seq2seq_lab.compare FOLDER --wandb ENTITY/PROJECT`."""

import sys

from seq2seq_lab.renamed import print_new_command

if __name__ == "__main__":
    del sys.argv[1:]  # the entity and the project are one argument now
    print_new_command("dashboard", "compare FOLDER", added="--wandb ENTITY/PROJECT")
