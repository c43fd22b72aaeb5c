#include "cli/terminal/names.h"

#include "common/buf.h"
#include "common/text.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_MAX_BYTES = 4096 };

static bool begins_character(char c)
{
    return ((unsigned char)c & 0xc0) != 0x80;
}

int pp_name_places(const char *text)
{
    int places = 0;
    for (const char *c = text; *c; c++)
        places += begins_character(*c);
    return places;
}

void pp_name_print_right(FILE *to, const char *text, int places)
{
    (void)fprintf(to, " %*s", places + (int)strlen(text) - pp_name_places(text), text);
}

/* Of a name that has `all` places: 0 where it is short enough as it is. */
static int left_out_before(const pp_name_cut *c, int all)
{
    if (all <= c->places || c->from == 0)
        return 0;
    return c->from < all - c->places + 1 ? c->from : all - c->places + 1;
}

/* Appends to `out` what of a name is shown; the places that this takes. */
static int shorten(const char *text, const pp_name_cut *c, pp_buf *out)
{
    const int before = left_out_before(c, pp_name_places(text));
    const int all = pp_name_places(text) - (before ? before - 1 : 0);
    const int gone = all > c->places ? all - c->places + 1 : 0;
    int at = before ? 1 - before : 0;
    bool control = false;
    if (before)
        (void)pp_buf_append(out, "…", sizeof "…" - 1, NULL);
    for (const char *t = text; *t; t++) {
        const bool begins = begins_character(*t);
        at += begins;
        control = begins ? pp_text_is_control(t) : control;
        if (gone && begins && at == c->head + 1)
            (void)pp_buf_append(out, "…", sizeof "…" - 1, NULL);
        if ((before && at <= 1) || (gone && at > c->head && at <= c->head + gone))
            continue;
        if (begins || !control)
            (void)pp_buf_append(out, control ? "?" : t, 1, NULL);
    }
    (void)pp_buf_append(out, "", 1, NULL);
    return all < c->places ? all : c->places;
}

void pp_name_print(FILE *to, const char *text, const pp_name_cut *c)
{
    pp_buf shown;
    pp_buf_init(&shown, NAME_MAX_BYTES);
    const int places = shorten(text, c, &shown);
    (void)fprintf(to, "%s%*s", shown.data ? shown.data : "", c->places - places, "");
    pp_buf_done(&shown);
}

void pp_lines_print(FILE *to, const char *text)
{
    bool control = false;
    for (const char *t = text; *t; t++) {
        const bool begins = begins_character(*t);
        control = begins ? *t != '\n' && pp_text_is_control(t) : control;
        if (begins || !control)
            (void)fputc(control ? '?' : *t, to);
    }
}

/* ---- names apart ---- */

typedef struct shown_name {
    char *shown;
    const char *whole;
} shown_name;

static int compare_shown(const void *a, const void *b)
{
    const shown_name *x = a, *y = b;
    const int by = strcmp(x->shown, y->shown);
    return by ? by : strcmp(x->whole, y->whole);
}

/* False where memory is out. */
static bool show_all(const char *const *names, size_t n, const pp_name_cut *c, shown_name *to)
{
    bool all = true;
    for (size_t i = 0; i < n; i++) {
        pp_buf shown;
        pp_buf_init(&shown, NAME_MAX_BYTES);
        (void)shorten(names[i], c, &shown);
        to[i] = (shown_name){shown.data ? strdup(shown.data) : NULL, names[i]};
        all &= to[i].shown != NULL;
        pp_buf_done(&shown);
    }
    return all;
}

/* How many names look like another one; more than there are where memory is out. */
static size_t count_alike(const char *const *names, size_t n, const pp_name_cut *c)
{
    shown_name *shown = calloc(n + 1, sizeof *shown);
    const bool all = shown && show_all(names, n, c, shown);
    size_t alike = all ? 0 : n + 1;
    if (all && n > 0)
        qsort(shown, n, sizeof *shown, compare_shown);
    for (size_t i = 1; all && i < n; i++)
        alike += strcmp(shown[i - 1].shown, shown[i].shown) == 0 &&
                 strcmp(shown[i - 1].whole, shown[i].whole) != 0;
    for (size_t i = 0; shown && i < n; i++)
        free(shown[i].shown);
    free(shown);
    return alike;
}

bool pp_names_apart(const char *const *names, size_t n, const pp_name_cut *cut)
{
    return count_alike(names, n, cut) == 0;
}

int pp_names_longest(const char *const *names, size_t n)
{
    int longest = 0;
    for (size_t i = 0; i < n; i++) {
        const int places = pp_name_places(names[i]);
        longest = places > longest ? places : longest;
    }
    return longest < NAME_MAX_BYTES ? longest : NAME_MAX_BYTES;
}

bool pp_names_cut(const char *const *names, size_t n, int places, pp_name_cut *ret)
{
    const int heads[] = {places / 2,     places / 4,     places / 8, 0,
                         places * 3 / 4, places * 7 / 8, places - 1};
    size_t least = SIZE_MAX;
    for (size_t i = 0; least > 0 && i < sizeof heads / sizeof *heads; i++) {
        const pp_name_cut c = {.places = places, .head = heads[i]};
        const size_t alike = count_alike(names, n, &c);
        if (alike < least) {
            least = alike;
            *ret = c;
        }
    }
    return least == 0;
}

bool pp_names_cut_begins(const char *const *names, size_t n, int places, pp_name_cut *ret)
{
    const int longest = pp_names_longest(names, n), step = places / 4 + 1;
    for (int from = step; from < longest; from += step) {
        const pp_name_cut c = {.places = places, .head = places * 3 / 4, .from = from};
        if (pp_names_apart(names, n, &c)) {
            *ret = c;
            return true;
        }
    }
    return false;
}

/* ---- kernels ---- */

/* Where the parenthesis is that the text's last character closes; NULL where it closes none. */
static const char *opening_of(const char *text, size_t n)
{
    int depth = 0;
    while (n-- > 0) {
        depth += (text[n] == ')') - (text[n] == '(');
        if (depth <= 0)
            return depth == 0 && text[n] == '(' ? text + n : NULL;
    }
    return NULL;
}

static bool ends_with(const char *text, size_t n, const char *end)
{
    const size_t length = strlen(end);
    return n >= length && memcmp(text + n - length, end, length) == 0;
}

/* Length without the arguments at the end. "(anonymous namespace)" and "operator()" are none. */
static size_t without_arguments(const char *text, size_t n)
{
    const char *opening = opening_of(text, n);
    const size_t left = opening ? (size_t)(opening - text) : 0;
    if (left == 0 || ends_with(text, left, "::") || ends_with(text, left, "operator"))
        return n;
    return left;
}

char *pp_name_of_kernel(const char *demangled)
{
    static const char nothing[] = "void ";
    const size_t skip =
        strncmp(demangled, nothing, sizeof nothing - 1) == 0 ? sizeof nothing - 1 : 0;
    const char *name = demangled + skip;
    return strndup(name, without_arguments(name, strlen(name)));
}
