#include "cli/figures/svg.h"

#include "common/text.h"

#include <math.h>
#include <string.h>

/* Colours of either scheme have a contrast of 3 to 1 and more against the ground, texts 4.5. */
static const char style[] =
    "svg{font:12px system-ui,sans-serif;background:#fff}"
    "text{fill:#1a1a1a}.title{font-size:15px;font-weight:600}.muted{fill:#5a5a5a}"
    ".forward{fill:#1f6fb4}.backward{fill:#c05a00}.group{fill-opacity:.45}"
    ".job0{fill:#1f6fb4}.job1{fill:#c05a00}.job2{fill:#2e7d32}.job3{fill:#8e3ba8}.job4{fill:#"
    "b0233a}"
    ".job5{fill:#5a5a5a}line{stroke:#d8d8d8}.whisker{stroke:#1a1a1a}"
    "@media(prefers-color-scheme:dark){svg{background:#16181c}text{fill:#ececec}"
    ".muted{fill:#a8a8a8}.forward{fill:#5aa9e6}.backward{fill:#f2994a}"
    ".job0{fill:#5aa9e6}.job1{fill:#f2994a}.job2{fill:#6fcf97}.job3{fill:#c58af9}.job4{fill:#"
    "f28b9a}"
    ".job5{fill:#b0b0b0}line{stroke:#3a3d44}.whisker{stroke:#ececec}}";

/* Bytes of the character that begins here. */
static size_t length_of(const char *text)
{
    size_t n = 1;
    while (((unsigned char)text[n] & 0xc0) == 0x80)
        n++;
    return n;
}

/* Whether these bytes are all of a character: a long name may have been cut within one. */
static bool is_whole(const char *text, size_t n)
{
    const unsigned char c = (unsigned char)*text;
    return n == (c < 0xc0 ? 1u : c < 0xe0 ? 2u : c < 0xf0 ? 3u : 4u);
}

void pp_svg_escape(FILE *to, const char *text)
{
    static const char special[] = "&<>\"'";
    static const char *const names[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
    while (*text) {
        const char *found = strchr(special, *text);
        const size_t n = length_of(text);
        if (found)
            (void)fputs(names[found - special], to);
        else if (pp_text_is_control(text))
            (void)fputc('?', to);
        else if (is_whole(text, n))
            (void)fwrite(text, 1, n, to);
        text += n;
    }
}

void pp_svg_begin(FILE *to, double width, double height, const char *title, const char *text)
{
    (void)fprintf(to,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" width=\"%g\" "
                  "height=\"%g\" viewBox=\"0 0 %g %g\">\n<title>",
                  width, height, width, height);
    pp_svg_escape(to, title);
    (void)fputs("</title>\n<desc>", to);
    pp_svg_escape(to, text);
    (void)fprintf(to, "</desc>\n<style>%s</style>\n", style);
}

void pp_svg_end(FILE *to)
{
    (void)fputs("</svg>\n", to);
}

void pp_svg_text(FILE *to, double x, double y, pp_svg_anchor anchor, const char *class,
                 const char *text)
{
    static const char *const anchors[] = {"start", "middle", "end"};
    (void)fprintf(to, "<text x=\"%g\" y=\"%g\" text-anchor=\"%s\" class=\"%s\">", x, y,
                  anchors[anchor], class);
    pp_svg_escape(to, text);
    (void)fputs("</text>\n", to);
}

void pp_svg_percent_axis(FILE *to, double x, double width, double top, double bottom)
{
    enum { STEP = 25, WHOLE = 100, BELOW = 14 };
    for (int percent = 0; percent <= WHOLE; percent += STEP) {
        const double at = x + width * percent / WHOLE;
        char text[16];
        (void)snprintf(text, sizeof text, "%d", percent);
        (void)fprintf(to, "<line x1=\"%g\" y1=\"%g\" x2=\"%g\" y2=\"%g\"/>\n", at, top, at, bottom);
        pp_svg_text(to, at, bottom + BELOW, PP_SVG_MIDDLE, PP_SVG_MUTED, text);
    }
}

void pp_svg_draw_bar(FILE *to, const pp_svg_bar *bar)
{
    (void)fprintf(to, "<g><title>");
    pp_svg_escape(to, bar->title);
    (void)fprintf(to, "</title><rect class=\"%s\" x=\"%g\" y=\"%g\" width=\"%.2f\" height=\"%g\"/>",
                  bar->class, bar->x, bar->y, bar->width, bar->height);
    const double middle = bar->y + bar->height / 2;
    if (!isnan(bar->whisker_from) && bar->whisker_to - bar->whisker_from >= 1)
        (void)fprintf(to, "<line class=\"whisker\" x1=\"%.2f\" y1=\"%g\" x2=\"%.2f\" y2=\"%g\"/>",
                      bar->whisker_from, middle, bar->whisker_to, middle);
    (void)fputs("</g>\n", to);
}

void pp_svg_legend(FILE *to, double x, double y, const char *const *entries)
{
    enum { SIDE = 10, APART = 90 };
    for (; entries[0]; entries += 2, x += APART) {
        (void)fprintf(to, "<rect class=\"%s\" x=\"%g\" y=\"%g\" width=\"%d\" height=\"%d\"/>\n",
                      entries[0], x, y - SIDE, SIDE, SIDE);
        pp_svg_text(to, x + SIDE + 4, y, PP_SVG_START, "", entries[1]);
    }
}
