"""`python -m seq2seq_lab.word_vectors`: train word vectors on a corpus, and explore the vectors of a file."""

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seq2seq_lab.data.analogies import Analogy, generated_analogies, pairs_of, read_analogies
from seq2seq_lab.data.local_files import find_file
from seq2seq_lab.errors import (
    Parser,
    UserError,
    did_you_mean,
    output_file,
    print_visible,
    report_errors,
    require,
    seed_number,
)
from seq2seq_lab.files import write_atomically
from seq2seq_lab.metrics.analogies import SectionScore, score_analogies, spelling, summaries
from seq2seq_lab.runtime.tables import print_table

if TYPE_CHECKING:
    from seq2seq_lab.config.schema import Config

OF_TRAINING = ("side", "method", "size", "window", "negative", "epochs", "seed")
METHODS = ("skip_gram", "cbow")
GENERATED = "generated"
DRAWN_PAIRS = 8  # of each section


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; see `parser`."""
    with report_errors():
        program = parser()
        options = program.parse_intermixed_args(arguments)
        logging.getLogger("gensim").setLevel(logging.WARNING)
        if options.changes and not options.train:
            raise UserError(
                f"{options.changes[0]}: settings of the corpus are used with --train only. Add it."
            )
        program.refuse_without("train", OF_TRAINING, options)
        program.refuse_without("picture", ["words"], options)
        asked = options.nearest or options.analogy or options.analogies or options.picture
        if not options.train and not asked:
            raise UserError(
                f"Nothing to do with {options.file}. Add --train, --nearest, --analogy, --analogies or --picture."
            )
        if options.picture:
            from seq2seq_lab.plots import picture_format

            picture_format(options.picture)
        sections = check_questions(options)
        if options.train:
            train(options)
        if asked:
            show(options, sections)


def parser() -> Parser:
    """Return the parser of the command line."""
    arguments = Parser(
        prog="python -m seq2seq_lab.word_vectors",
        usage="%(prog)s FILE [KEY=VALUE ...] [options]",
        description="Train word vectors on one side of the training split of a corpus and write them in the text format "
        "that embedding.source.path reads; show nearest neighbors, analogies and a picture of the vectors of a file.",
        epilog="Example: python -m seq2seq_lab.word_vectors en.vec --train dataset=grammar --nearest king --picture en.png",
    )
    arguments.add_argument(
        "file",
        type=Path,
        metavar="FILE",
        help="the file of the vectors: fastText, GloVe, or written with --train",
    )
    arguments.add_argument(
        "changes",
        nargs="*",
        metavar="KEY=VALUE",
        help="settings of the corpus: dataset=…, dataset.KEY=…, tokenizer=…",
    )
    arguments.add_argument("--train", action="store_true", help="train the vectors and write the file")
    arguments.add_argument(
        "--side", choices=("source", "target"), default="source", help="of a parallel corpus"
    )
    arguments.add_argument("--method", choices=METHODS, default="skip_gram", help="default: skip_gram")
    arguments.add_argument("--size", type=int, default=256, help="size of a vector (default: 256)")
    arguments.add_argument("--window", type=int, default=5, help="words on each side of a word (default: 5)")
    arguments.add_argument("--negative", type=int, default=5, help="negative samples of a word (default: 5)")
    arguments.add_argument("--epochs", type=int, default=5, help="passes over the text (default: 5)")
    arguments.add_argument("--seed", type=seed_number, default=1, help="default: 1")
    arguments.add_argument(
        "--nearest",
        action="append",
        default=[],
        metavar="WORD",
        help="print the nearest words; may be repeated",
    )
    arguments.add_argument(
        "--analogy",
        action="append",
        nargs=3,
        default=[],
        metavar=("A", "B", "C"),
        help="print the words that are to C as B is to A; may be repeated",
    )
    arguments.add_argument(
        "--analogies",
        metavar="QUESTIONS",
        help="print the accuracy on a file in the format of questions-words.txt, by section; generated: on the questions "
        "about the words of dataset=analogies",
    )
    arguments.add_argument(
        "--count", type=int, default=5, help="words to print for each question (default: 5)"
    )
    arguments.add_argument(
        "--picture",
        type=output_file,
        metavar="FILE.png",
        help="draw words in two dimensions (principal components)",
    )
    arguments.add_argument(
        "--words",
        nargs="+",
        metavar="WORD",
        help="the words of the picture; default: the first pairs of each section of --analogies, or the most frequent words",
    )
    return arguments


def gensim_models() -> Any:
    """Return gensim's `models`.

    Raises:
        UserError: gensim is not installed.
    """
    try:
        from gensim import models
    except ImportError as error:
        raise UserError("word_vectors needs gensim: pip install 'seq2seq_lab[vectors]'.") from error
    return models


def train(options: argparse.Namespace) -> None:
    """Train word vectors and write them.

    The vectors are those of Mikolov 2013 (arXiv:1310.4546) with negative sampling, times one factor, so that the mean square
    of their values is 1, like that of random embeddings with `model.scale_embeddings`. Training uses one thread, so that
    the same command writes the same file.

    Raises:
        UserError: the corpus cannot be read, an option is out of range, the file exists, or its folder does not.
    """
    from seq2seq_lab.config.compose import compose_run

    for name in ("size", "window", "negative", "epochs"):
        require((value := getattr(options, name)) >= 1, f"--{name}", value, "1 or more")
    config = compose_run(options.changes).config
    if options.file.exists():
        raise UserError(f"{options.file} exists. Give the name of a new file.")
    if not options.file.parent.is_dir():
        raise UserError(f"{options.file.parent} is not a folder. Create it, or give another file.")
    models = gensim_models()
    sentences = tokens_of(config, options.side)
    trained = models.Word2Vec(
        sentences,
        sg=METHODS.index(options.method) == 0,
        vector_size=options.size,
        window=options.window,
        negative=options.negative,
        epochs=options.epochs,
        seed=options.seed,
        min_count=1,  # the tokenizer leaves out rare words
        workers=1,
    )
    words = trained.wv
    scale = (words.vectors**2).mean() ** -0.5
    rows = (
        f"{word} {' '.join(f'{value:.5f}' for value in scale * words[word])}" for word in words.index_to_key
    )
    write_atomically(options.file, "\n".join([f"{len(words)} {options.size}", *rows]) + "\n")
    print(f"{len(words):,} vectors of size {options.size} written to {options.file}")


def tokens_of(config: "Config", side: str) -> list[list[str]]:
    """Return the tokens of the training sentences of a corpus, without unknown words.

    Args:
        side: source or target of a parallel corpus; text of one language has one side.

    Raises:
        UserError: the corpus cannot be read.
    """
    from seq2seq_lab.data.corpus import Corpus
    from seq2seq_lab.data.sentences import SentenceCorpus
    from seq2seq_lab.data.tokenizers import UNK
    from seq2seq_lab.launching.checks import check_slots
    from seq2seq_lab.tasks.parts import build_dataset, build_tokenizer

    check_slots(config)
    corpus = build_dataset(config).load()
    if isinstance(corpus, Corpus):
        text, first = corpus.train, side == "source"
        lines = text.source if first else text.target
        language = corpus.source_language if first else corpus.target_language
    elif isinstance(corpus, SentenceCorpus):
        lines, language = corpus.train.lines, corpus.language
    else:
        raise UserError(
            f"dataset._target_={(config.dataset or {}).get('_target_')} has a corpus of type {type(corpus).__name__}, and "
            f"word vectors need sentences. Choose a parallel data set, or dataset=monolingual."
        )
    tokenizer = build_tokenizer(config)()
    tokenizer.use_languages(language)
    tokenizer.train(lines)
    return [tokenizer.tokens([i for i in ids if i != UNK]) for ids in tokenizer.encode([*lines])]


def check_questions(options: argparse.Namespace) -> dict[str, list[Analogy]]:
    """Check the options of what is shown, and return the questions of `--analogies`.

    Raises:
        UserError: an option is out of range, or the file of questions cannot be used.
    """
    require(options.count >= 1, "--count", options.count, "1 or more")
    words = options.words
    require(words is None or len(words) > 1, "--words", " ".join(words or ()), "two or more words")
    return analogies(options.analogies) if options.analogies else {}


def show(options: argparse.Namespace, sections: dict[str, list[Analogy]]) -> None:
    """Print nearest neighbors and analogies, and draw the picture.

    Args:
        sections: the questions of `--analogies`.

    Raises:
        UserError: a file cannot be used, or a word has no vector or one of zeros, which has no direction.
    """
    words = read(options.file)
    for word in (
        *options.nearest,
        *(word for question in options.analogy for word in question),
        *(options.words or ()),
    ):
        if word not in words:
            raise UserError(
                f"{word} has no vector in {options.file}.{did_you_mean(word, words.index_to_key)} Choose another word."
            )
        if not words[word].any():
            raise UserError(f"{word} has a vector of zeros in {options.file}. Choose another word.")
    for word in options.nearest:
        print_visible(f"{word}: {_listed(words.most_similar(word, topn=options.count))}")
    for first, second, third in options.analogy:
        found = words.most_similar(positive=[second, third], negative=[first], topn=options.count)
        print_visible(f"{first} : {second} = {third} : {_listed(found)}")
    if sections:
        print_scores(score_analogies(sections, words.index_to_key, words.vectors))
    if options.picture and sections and not options.words:
        draw_sections(options, sections, words)
    elif options.picture:
        from seq2seq_lab import plots

        chosen = options.words or words.index_to_key[:100]
        if len(chosen) < 2:
            raise UserError(f"{options.file} has one word. A picture needs two or more words.")
        plots.save_figure(plots.draw_words(words[chosen], chosen), options.picture)
        print(f"{len(chosen)} words drawn in {options.picture}")


def analogies(questions: str) -> dict[str, list[Analogy]]:
    """Return the questions of a file, or those about the generated text, by section.

    Raises:
        UserError: the file cannot be used.
    """
    if questions == GENERATED:
        return generated_analogies()
    return read_analogies(find_file("--analogies", questions), "--analogies")


def print_scores(scores: dict[str, SectionScore]) -> None:
    """Print the accuracy of each section and of the semantic sections, the syntactic ones and all."""
    rows = [_score_row(name, one) for name, one in [*scores.items(), *summaries(scores).items()]]
    heads = ["section", "accuracy", "correct", "asked", "unknown", "nearest to C"]
    print_table("Analogies: A is to B as C is to D", heads, rows, 5)


def _score_row(name: str, score: SectionScore) -> list[str]:
    accuracy, nearest = (
        f"{correct / score.asked:.1%}" if score.asked else "–"
        for correct in (score.correct, score.nearest_correct)
    )
    return [name, accuracy, *(f"{count:,}" for count in (score.correct, score.asked, score.unknown)), nearest]


def draw_sections(options: argparse.Namespace, sections: dict[str, list[Analogy]], words: Any) -> None:
    """Draw the first pairs of each section that have vectors.

    Raises:
        UserError: no pair has.
    """
    from seq2seq_lab import plots

    drawn: dict[str, list[tuple[str, str]]] = {}
    for name, questions in sections.items():
        pairs = [(spelling(one, words), spelling(other, words)) for one, other in pairs_of(questions)]
        if known := [(one, other) for one, other in pairs if one in words and other in words]:
            drawn[name] = known[:DRAWN_PAIRS]
    if not drawn:
        raise UserError(
            f"--picture={options.picture}: no pair of --analogies={options.analogies} has vectors in {options.file}. "
            f"Choose the words of the picture with --words."
        )
    plots.save_figure(plots.draw_word_pairs(drawn, words), options.picture)
    print(f"{sum(map(len, drawn.values()))} pairs drawn in {options.picture}")


def read(path: Path) -> Any:
    """Return the vectors of a file as gensim's `KeyedVectors`.

    Raises:
        UserError: the file does not exist or has another format.
    """
    from seq2seq_lab.data.vectors import read_all_vectors

    words, vectors_VD = read_all_vectors(path, "FILE")
    vectors = gensim_models().KeyedVectors(vectors_VD.shape[1])
    vectors.add_vectors(words, vectors_VD.numpy())
    return vectors


def _listed(found: Sequence[tuple[str, float]]) -> str:
    return ", ".join(f"{word} ({similarity:.2f})" for word, similarity in found)


if __name__ == "__main__":
    main()
