"""`python -m seq2seq_lab.reproduce` is now `python -m seq2seq_lab.runs RUN --reproduce`."""

from seq2seq_lab.renamed import print_new_command

if __name__ == "__main__":
    print_new_command("reproduce", "runs", added="--reproduce")
