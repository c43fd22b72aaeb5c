/* SVG documents of text and bars. Lengths are in CSS pixels; y grows downwards. */
#ifndef PP_CLI_FIGURES_SVG_H
#define PP_CLI_FIGURES_SVG_H

#include <stdio.h>

/** Classes of what is drawn, by which it is coloured. */
#define PP_SVG_FORWARD "forward"
#define PP_SVG_BACKWARD "backward"
#define PP_SVG_MUTED "muted"

/** Begins a document; `title` is what a screen reader says, `text` describes it. */
void pp_svg_begin(FILE *to, double width, double height, const char *title, const char *text);
void pp_svg_end(FILE *to);

/** A text as XML has it, without control characters: it may come from anybody. */
void pp_svg_escape(FILE *to, const char *text);

typedef enum pp_svg_anchor { PP_SVG_START, PP_SVG_MIDDLE, PP_SVG_END } pp_svg_anchor;

/** A line of text whose baseline is at y; `class` may be "". */
void pp_svg_text(FILE *to, double x, double y, pp_svg_anchor anchor, const char *class,
                 const char *text);

/** An axis from 0 to 100 percent below a plot of this width: lines from `top` to `bottom`, and
 * their numbers. */
void pp_svg_percent_axis(FILE *to, double x, double width, double top, double bottom);

typedef struct pp_svg_bar {
    double x, y, width, height;
    double whisker_from, whisker_to; /**< x of its ends; NaN: none */
    const char *class;
    const char *title; /**< what it is, in words */
} pp_svg_bar;

/** A horizontal bar that begins at x, with a whisker across its end. */
void pp_svg_draw_bar(FILE *to, const pp_svg_bar *bar);

/** Small squares with what they mean, from x on: class and text by turns, up to NULL. */
void pp_svg_legend(FILE *to, double x, double y, const char *const *entries);

#endif
