"""`python -m seq2seq_lab.caption` is now `python -m seq2seq_lab.predict`."""

from seq2seq_lab.renamed import print_new_command

if __name__ == "__main__":
    print_new_command("caption", "predict")
