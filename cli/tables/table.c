#include "cli/tables/table.h"

#include "cli/results/items.h"
#include "cli/tables/headline.h"
#include "cli/tables/table_copies.h"
#include "cli/tables/table_gpu.h"
#include "cli/tables/table_kernels.h"
#include "cli/tables/table_layout.h"
#include "cli/tables/table_pattern.h"
#include "cli/tables/table_quality.h"
#include "cli/tables/table_ranks.h"
#include "cli/tables/table_waits.h"
#include "cli/terminal/names.h"
#include "common/metric.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { WHOLE_LISTED = 5 };

/* To the right of a column. A character of several bytes takes one place. */
static void print_value(FILE *to, const json_t *estimate, double scale)
{
    const json_t *mean = json_object_get(estimate, "mean");
    const json_t *group = json_object_get(estimate, "groupMean");
    const json_t *error = json_object_get(estimate, "standardError");
    char text[32] = "-";
    if (json_is_number(mean) && json_is_number(error))
        (void)snprintf(text, sizeof text, "%.1f±%.1f", json_number_value(mean) * scale,
                       json_number_value(error) * scale);
    else if (json_is_number(mean))
        (void)snprintf(text, sizeof text, "%.1f", json_number_value(mean) * scale);
    else if (json_is_number(group))
        (void)snprintf(text, sizeof text, "(%.1f)", json_number_value(group) * scale);
    pp_name_print_right(to, text, PP_TABLE_METRIC_PLACES);
}

/* Time and its share. */
static void print_times(FILE *to, const json_t *item)
{
    const json_t *ms = json_object_get(item, "millisecondsPerStep");
    char text[32];
    if (strcmp(pp_results_text(item, "kind"), "job") == 0 || !json_is_number(ms)) {
        (void)fprintf(to, " %9s %6s", "-", "-");
        return;
    }
    (void)snprintf(text, sizeof text, "%s%.3f", pp_item_is_lengthened(item) ? "≤" : "",
                   json_number_value(ms));
    pp_name_print_right(to, text, 9);
    (void)fprintf(to, " %5.1f%%", 100 * json_number_value(json_object_get(item, "share")));
}

static void print_busy(FILE *to, const json_t *item)
{
    const json_t *busy = json_object_get(item, "busyMillisecondsPerStep");
    if (json_is_number(busy))
        (void)fprintf(to, " %9.3f", json_number_value(busy));
    else
        (void)fprintf(to, " %9s", "-");
}

static void print_idle(FILE *to, const json_t *item)
{
    char text[32] = "-";
    const json_t *idle = json_object_get(item, "idleShare");
    if (json_is_number(idle))
        (void)snprintf(text, sizeof text, "%s%.1f%%", pp_item_is_lengthened(item) ? "≤" : "",
                       100 * json_number_value(idle));
    pp_name_print_right(to, text, 7);
}

static void print_calls(FILE *to, const json_t *item, double steps)
{
    const json_t *calls = json_object_get(item, "calls");
    if (pp_item_is_layer(item) && json_is_number(calls) && steps > 0)
        (void)fprintf(to, " %7.2f", json_number_value(calls) / steps);
    else
        (void)fprintf(to, " %7s", "");
}

/* In the places that there are. */
static const char *short_bound(const char *bound)
{
    return !*bound                                 ? "-"
           : strcmp(bound, "Communication") == 0   ? "Comm."
           : strcmp(bound, "Synchronization") == 0 ? "Sync."
                                                   : bound;
}

static void print_bound(FILE *to, const json_t *item)
{
    const char *bound = pp_results_text(item, "bound");
    const bool sure = json_number_value(json_object_get(item, "boundLikely")) >= PP_ITEM_SURE;
    char text[32];
    (void)snprintf(text, sizeof text, "%.7s%s", short_bound(bound), *bound && !sure ? "?" : "");
    (void)fprintf(to, " %-*s", PP_TABLE_BOUND_PLACES, text);
}

/* In MiB: the most, and what is left of it. */
static void print_memory(FILE *to, const json_t *item)
{
    static const char *const columns[] = {"memoryPeakBytes", "memoryLiveBytes"};
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        const json_t *bytes = json_object_get(item, columns[i]);
        const double mib = json_number_value(bytes) / (1 << 20);
        if (json_is_integer(bytes))
            (void)fprintf(to, " %*.1f", PP_TABLE_MEMORY_PLACES, fabs(mib) < 0.05 ? 0 : mib);
        else
            (void)fprintf(to, " %*s", PP_TABLE_MEMORY_PLACES, "-");
    }
}

static void print_name(FILE *to, const pp_table_layout *l, const char *name)
{
    const pp_name_cut whole = {.places = pp_name_places(name)};
    if (l->own_lines && whole.places > l->layer.places) {
        pp_name_print(to, name, &whole);
        (void)fputc('\n', to);
        name = "";
    }
    pp_name_print(to, name, &l->layer);
}

/* What a table is printed with: how it is laid out, and of how many steps its rows are. */
typedef struct printing {
    pp_table_layout layout;
    pp_table_view view;
    pp_name_cut kernels;
    double steps; /* that were marked */
} printing;

static void print_item(FILE *to, const printing *p, const json_t *item)
{
    const pp_table_layout *l = &p->layout;
    print_name(to, l, pp_item_name(item));
    if (l->types) {
        (void)fputc(' ', to);
        pp_name_print(to, pp_results_text(item, "type"), &l->type);
    }
    (void)fprintf(to, " %-9.9s", pp_item_phase(item));
    if (l->calls)
        print_calls(to, item, p->steps);
    print_times(to, item);
    if (l->busy)
        print_busy(to, item);
    if (l->idle)
        print_idle(to, item);
    pp_metric metric;
    for (int i = 0; (metric = pp_metric_in_column(i)) < PP_METRIC_COUNT; i++) {
        const pp_metric_info *info = pp_metric_get(metric);
        if (l->metrics[metric])
            print_value(to, pp_json_get(item, "metrics", info->spec_name, NULL), info->shown);
    }
    if (l->memory)
        print_memory(to, item);
    if (l->bounds)
        print_bound(to, item);
    (void)fputc('\n', to);
    pp_table_kernels_print(to, item, &p->view, &p->kernels);
}

/* Without control characters of the names in it. */
static void print_headline(FILE *to, const json_t *gpu)
{
    char *text = NULL;
    size_t length = 0;
    FILE *line = open_memstream(&text, &length);
    if (!line)
        return;
    pp_headline_print(line, gpu);
    if (fclose(line) == 0)
        pp_lines_print(to, text);
    free(text);
}

static void print_heading(FILE *to, const printing *p, const json_t *gpu)
{
    (void)fputc('\n', to);
    pp_table_gpu_print(to, gpu);
    (void)fputc('\n', to);
    print_headline(to, gpu);
    (void)fprintf(to,
                  "(percent ± standard error; in brackets: of a group; -: not known; "
                  "≤: with what marks may have added%s)\n",
                  p->layout.bounds ? "; bound: of its kernels, ?: less than 95 % sure" : "");
    pp_table_layout_heading(to, &p->layout);
    if (p->view.kernels > 0 && pp_table_kernels_known(gpu))
        pp_table_kernels_heading(to);
}

/* Why busy times are not known, or "". One reason serves: it is the process's, not the layer's. */
static const char *busy_reason_of(const json_t *items)
{
    size_t i;
    json_t *item;
    json_array_foreach((json_t *)(uintptr_t)items, i, item)
    {
        if (pp_item_is_layer(item) && *pp_results_text(item, "busyReason"))
            return pp_results_text(item, "busyReason");
    }
    return "";
}

static void print_reason(FILE *to, const json_t *items)
{
    if (*busy_reason_of(items))
        (void)fprintf(to, "busy times are not known: %s\n", busy_reason_of(items));
}

/* A layer has a row for each of its phases. */
static bool came_before(const json_t *items, size_t at)
{
    const char *name = pp_item_name(json_array_get(items, at));
    for (size_t i = 0; i < at; i++) {
        const json_t *item = json_array_get(items, i);
        if (*pp_results_text(item, "wholeReason") && strcmp(pp_item_name(item), name) == 0)
            return true;
    }
    return false;
}

static void print_one_whole(FILE *to, const json_t *item)
{
    const char *texts[] = {pp_item_name(item), pp_results_text(item, "wholeReason")};
    (void)fputs("told whole: ", to);
    for (size_t i = 0; i < 2; i++) {
        const pp_name_cut all = {.places = pp_name_places(texts[i])};
        pp_name_print(to, texts[i], &all);
        (void)fputs(i == 0 ? ": " : "\n", to);
    }
}

/* Layers that stand for what is in them, and why: a few. */
static void print_whole(FILE *to, const json_t *items)
{
    size_t i, count = 0;
    json_t *item;
    json_array_foreach((json_t *)(uintptr_t)items, i, item)
    {
        if (!*pp_results_text(item, "wholeReason") || came_before(items, i))
            continue;
        if (count++ < WHOLE_LISTED)
            print_one_whole(to, item);
    }
    if (count > WHOLE_LISTED)
        (void)fprintf(to, "told whole: %zu more layers\n", count - WHOLE_LISTED);
}

static void print_unknown_kernels(FILE *to, const json_t *gpu)
{
    const char *why = busy_reason_of(json_object_get(gpu, "items"));
    if (!pp_table_kernels_known(gpu))
        (void)fprintf(to, "kernels are not known%s%s\n", *why ? ": " : "", why);
}

/* What they do the GPU's counters hold, too. */
static void print_others(FILE *to, const json_t *device)
{
    size_t i;
    json_t *other;
    const json_t *others = json_object_get(device, "others");
    json_array_foreach((json_t *)(uintptr_t)others, i, other)
    {
        (void)fprintf(to, "%s %s (%lld)",
                      i ? "," : "others used this GPU:", pp_results_text(other, "name"),
                      (long long)json_integer_value(json_object_get(other, "pid")));
    }
    if (json_array_size(others) > 0)
        (void)fputc('\n', to);
}

static void print_items(FILE *to, const printing *p, const json_t *items)
{
    size_t i, nothing = 0;
    json_t *item;
    json_array_foreach((json_t *)(uintptr_t)items, i, item)
    {
        if (pp_item_is_nothing(item))
            nothing++;
        else
            print_item(to, p, item);
    }
    if (nothing > 0)
        (void)fprintf(
            to, "not listed: %zu row%s of layers that take less than a microsecond of a step\n",
            nothing, nothing == 1 ? "" : "s");
    if (*p->layout.left_out)
        (void)fprintf(to, "no place in %d columns: %s\n", p->view.columns, p->layout.left_out);
}

static void print_gpu(FILE *to, const json_t *gpu, bool layers, const pp_table_view *view)
{
    const json_t *items = json_object_get(gpu, "items");
    printing p = {.layout = pp_table_lay_out(gpu, view->columns),
                  .view = *view,
                  .steps = json_number_value(json_object_get(gpu, "steps"))};
    if (view->kernels > 0)
        p.kernels = pp_table_kernels_cut(gpu, view);
    print_heading(to, &p, gpu);
    print_items(to, &p, items);
    print_reason(to, items);
    print_whole(to, items);
    if (view->kernels > 0)
        print_unknown_kernels(to, gpu);
    pp_table_quality_print(to, gpu, layers);
    print_others(to, json_object_get(gpu, "device"));
}

/* Once more, where somebody at a terminal looks: the first lines are out of sight by now. */
static void print_headlines(FILE *to, const json_t *results)
{
    size_t i;
    json_t *gpu;
    (void)fputc('\n', to);
    json_array_foreach(json_object_get(results, "gpus"), i, gpu) print_headline(to, gpu);
}

void pp_table_print(const json_t *results, FILE *to, const pp_table_view *view)
{
    size_t i;
    json_t *gpu;
    const bool layers =
        strcmp(pp_results_text(results, "method"), pp_method_spec_name(PP_METHOD_JOB)) != 0;
    const char *why = pp_results_unsampled(results);
    if (why)
        (void)fprintf(to, "precisionprobe: no step was sampled: %s\n", why);
    json_array_foreach(json_object_get(results, "gpus"), i, gpu)
    {
        if (!why || *pp_results_text(gpu, "gpu"))
            print_gpu(to, gpu, layers, view);
    }
    pp_table_pattern_print(to, results);
    pp_table_copies_print(to, results);
    pp_table_waits_print(to, results);
    pp_table_ranks_print(to, results);
    if (view->columns > 0)
        print_headlines(to, results);
}

int pp_table_columns(FILE *file)
{
    struct winsize size = {0};
    const int fd = fileno(file);
    return fd >= 0 && isatty(fd) && ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}
