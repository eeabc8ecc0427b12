"""`python -m seq2seq_lab`."""

from seq2seq_lab.launching.cli import main

if __name__ == "__main__":
    main()
