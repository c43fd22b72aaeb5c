#include "cli/top.h"

#include "cli/results/items.h"
#include "cli/results/sort.h"
#include "cli/terminal/names.h"
#include "cli/terminal/screen.h"
#include "common/cleanup.h"

#include <math.h>
#include <stdlib.h>

enum { KEY_SORT = 256, KEY_TIMES, NAME_LEAST = 12, ROWS_LEAST = 3, OTHER_PLACES = 57 };

/* ---- options ---- */

typedef struct parsing {
    pp_top_options *out;
    void *child_input;
    pp_error *err;
} parsing;

static error_t take_number(const char *text, const char *option, double least, double most,
                           double *ret, pp_error *err)
{
    char *end = NULL;
    *ret = strtod(text, &end);
    if (end != text && !*end && *ret >= least && *ret <= most)
        return 0;
    (void)pp_error_field(err, option, "must be a number from %g to %g, not %s", least, most, text);
    return EINVAL;
}

static error_t take(int key, char *text, struct argp_state *state)
{
    parsing *p = state->input;
    double number;
    error_t rc;
    switch (key) {
    case ARGP_KEY_INIT:
        if (p->child_input)
            state->child_inputs[0] = p->child_input;
        return 0;
    case 'i':
        return take_number(text, "--interval", 0.1, 86400, &p->out->seconds, p->err);
    case KEY_TIMES:
        rc = take_number(text, "--times", 1, 1e9, &number, p->err);
        p->out->times = (long)number;
        return rc;
    case KEY_SORT:
        p->out->sort = text;
        return 0;
    case ARGP_KEY_ARG:
        if (p->out->what)
            return ARGP_ERR_UNKNOWN;
        p->out->what = text;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "of what?");
        return EINVAL;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option known[] = {
    {"interval", 'i', "SECONDS", 0, "Look again after so long (5)", 0},
    {"sort", KEY_SORT, "COLUMN", 0, "As for report (time)", 0},
    {"times", KEY_TIMES, "N", 0, "Look N times (until q or Ctrl-C)", 0},
    {0}};

const struct argp_option *pp_top_options_known(void)
{
    return known;
}

int pp_top_options_parse(int argc, char **argv, const struct argp_child *children,
                         void *child_input, pp_top_options *ret, pp_error *err)
{
    const struct argp argp = {known,
                              take,
                              "WHAT",
                              "Shows layers by time, again and again: of a run's folder, or on a "
                              "cluster of a session.",
                              children,
                              NULL,
                              NULL};
    parsing p = {ret, child_input, err};
    *ret = (pp_top_options){.sort = "time", .seconds = 5};
    if (argp_parse(&argp, argc, argv, 0, NULL, &p) == 0)
        return 0;
    return err->code != PP_OK ? -1 : pp_error_set(err, PP_ERR_INVALID, "wrong arguments");
}

/* ---- rows ---- */

static pp_name_cut cut_of(const json_t *items, int columns)
{
    size_t i, n = 0;
    json_t *item;
    const char **names = calloc(json_array_size(items) + 1, sizeof *names);
    json_array_foreach((json_t *)(uintptr_t)items, i, item)
    {
        if (names)
            names[n++] = pp_item_name(item);
    }
    const int longest = names ? pp_names_longest(names, n) : NAME_LEAST;
    const int left = columns > 0 ? columns - OTHER_PLACES : longest;
    pp_name_cut cut = {.places = longest > NAME_LEAST ? longest : NAME_LEAST};
    if (names && longest > left)
        (void)(pp_names_cut(names, n, left > NAME_LEAST ? left : NAME_LEAST, &cut) ||
               pp_names_cut_begins(names, n, left > NAME_LEAST ? left : NAME_LEAST, &cut));
    free(names);
    return cut;
}

static void print_row(FILE *to, const json_t *item, const pp_name_cut *cut)
{
    const json_t *error = json_object_get(item, "millisecondsPerStepStandardError");
    const json_t *idle = json_object_get(item, "idleShare");
    char ms[48], quiet[16] = "-";
    const char *bound = pp_results_text(item, "bound");
    const bool sure = json_number_value(json_object_get(item, "boundLikely")) >= PP_ITEM_SURE;
    (void)snprintf(ms, sizeof ms, "%s%.3f%s", pp_item_is_lengthened(item) ? "≤" : "",
                   json_number_value(json_object_get(item, "millisecondsPerStep")),
                   json_is_number(error) ? "±" : "");
    if (json_is_number(error))
        (void)snprintf(ms + strlen(ms), sizeof ms - strlen(ms), "%.3f", json_number_value(error));
    if (json_is_number(idle))
        (void)snprintf(quiet, sizeof quiet, "%s%.1f%%", pp_item_is_lengthened(item) ? "≤" : "",
                       100 * json_number_value(idle));
    pp_name_print(to, pp_item_name(item), cut);
    (void)fprintf(to, " %-9.9s", pp_item_phase(item));
    pp_name_print_right(to, ms, 17);
    (void)fprintf(to, " %5.1f%%", 100 * json_number_value(json_object_get(item, "share")));
    pp_name_print_right(to, quiet, 7);
    (void)fprintf(to, "  %.10s%s\n", *bound ? bound : "-", *bound && !sure ? "?" : "");
}

static bool is_listed(const json_t *item)
{
    const char *kind = pp_results_text(item, "kind");
    return strcmp(kind, "job") != 0 && strcmp(kind, "idle") != 0 && !pp_item_is_nothing(item);
}

/* At most so many rows (0: all). */
static void print_gpu(FILE *to, const json_t *gpu, int columns, int rows)
{
    const json_t *items = json_object_get(gpu, "items");
    const pp_name_cut cut = cut_of(items, columns);
    const char *uuid = pp_results_text(gpu, "gpu"), *pod = pp_results_text(gpu, "pod");
    const json_t *error = json_object_get(gpu, "stepMsStandardError");
    size_t i;
    int listed = 0;
    json_t *item;
    (void)fprintf(to, "%s%s%.13s: %lld marked steps of %.3f", pod, *pod ? " " : "",
                  *uuid ? uuid : "no GPU",
                  (long long)json_integer_value(json_object_get(gpu, "steps")),
                  json_number_value(json_object_get(gpu, "stepMs")));
    if (json_is_number(error))
        (void)fprintf(to, "±%.3f", json_number_value(error));
    (void)fprintf(to, " ms\n%-*s %-9s %17s %6s %7s  %s\n", cut.places, "layer", "phase", "ms/step",
                  "share", "idle", "bound");
    json_array_foreach((json_t *)(uintptr_t)items, i, item)
    {
        if (is_listed(item) && (rows == 0 || listed < rows)) {
            print_row(to, item, &cut);
            listed++;
        }
    }
}

static void print_all(FILE *to, const json_t *results, const pp_screen_size *size)
{
    const json_t *gpus = json_object_get(results, "gpus");
    const int n = (int)json_array_size(gpus);
    int rows = size->rows > 0 && n > 0 ? (size->rows - 2) / n - 2 : 0;
    if (size->rows > 0 && rows < ROWS_LEAST)
        rows = ROWS_LEAST;
    size_t i;
    json_t *gpu;
    json_array_foreach((json_t *)(uintptr_t)gpus, i, gpu) print_gpu(to, gpu, size->columns, rows);
    if (n == 0)
        (void)fputs("nothing was measured yet\n", to);
}

/* ---- looking again and again ---- */

static char *frame_of(const pp_top_options *o, const json_t *results, const char *trouble,
                      const pp_screen_size *size)
{
    char *text = NULL;
    size_t length = 0;
    FILE *to = open_memstream(&text, &length);
    if (!to)
        return NULL;
    (void)fprintf(to, "%s%s%s\n", o->what, *trouble ? ": " : "", trouble);
    if (results)
        print_all(to, results, size);
    return fclose(to) == 0 ? text : NULL;
}

static int look(const pp_top_options *o, pp_top_read read, void *user, json_t **results,
                pp_error *err)
{
    json_t *now = NULL;
    if (read(user, &now, err) < 0)
        return -1;
    if (pp_results_sort(now, o->sort, err) < 0) {
        json_decref(now);
        return -1;
    }
    json_decref(*results);
    *results = now;
    return 0;
}

static int follow(const pp_top_options *o, pp_top_read read, void *user, json_t **results,
                  pp_screen *screen, pp_error *err)
{
    char trouble[256] = "";
    int end = 0;
    for (long i = 1; end == 0; i++) {
        const pp_screen_size size = pp_screen_size_of(screen);
        PP_CLEANUP_FREE char *frame = frame_of(o, *results, trouble, &size);
        if (!frame)
            return pp_error_nomem(err);
        pp_screen_show(screen, frame);
        if (o->times > 0 && i >= o->times)
            return 0;
        end = pp_screen_wait(screen, o->seconds);
        if (end != 0)
            break;
        pp_error why = {0};
        const bool failed = look(o, read, user, results, &why) < 0;
        (void)snprintf(trouble, sizeof trouble, "%s", failed ? why.message : "");
        trouble[strcspn(trouble, "\n")] = '\0'; /* one line of the screen */
    }
    return end == PP_SCREEN_QUIT ? 0 : 128 + end;
}

int pp_top(const pp_top_options *o, pp_top_read read, void *user, pp_error *err)
{
    json_t *results = NULL;
    pp_screen *screen = NULL;
    int rc = look(o, read, user, &results, err);
    if (rc == 0)
        rc = pp_screen_open(&screen, err);
    if (rc == 0)
        rc = follow(o, read, user, &results, screen, err);
    pp_screen_close(screen);
    json_decref(results);
    return rc;
}
