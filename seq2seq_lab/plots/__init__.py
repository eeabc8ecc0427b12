"""Pictures of attention, of metrics by group of examples, and of training curves.

Figures are drawn without pyplot: no window system is needed and no state is kept between calls. Matplotlib is
imported on first use, because the import is slow.
"""

from seq2seq_lab.plots.attention import draw_attention as draw_attention
from seq2seq_lab.plots.attention import draw_attention_maps as draw_attention_maps
from seq2seq_lab.plots.attention import draw_overlays as draw_overlays
from seq2seq_lab.plots.curves import Point as Point
from seq2seq_lab.plots.curves import Series as Series
from seq2seq_lab.plots.curves import draw_curves as draw_curves
from seq2seq_lab.plots.curves import draw_groups as draw_groups
from seq2seq_lab.plots.curves import draw_series as draw_series
from seq2seq_lab.plots.masks import draw_masks as draw_masks
from seq2seq_lab.plots.output import picture_format as picture_format
from seq2seq_lab.plots.output import render_png as render_png
from seq2seq_lab.plots.output import render_svg as render_svg
from seq2seq_lab.plots.output import save_figure as save_figure
from seq2seq_lab.plots.output import save_for_print as save_for_print
from seq2seq_lab.plots.texts import draw_confusion as draw_confusion
from seq2seq_lab.plots.texts import draw_shaded as draw_shaded
from seq2seq_lab.plots.texts import draw_word_pairs as draw_word_pairs
from seq2seq_lab.plots.texts import draw_words as draw_words
