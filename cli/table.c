#include "cli/table.h"

#include "cli/names.h"
#include "cli/results.h"
#include "cli/table_copies.h"
#include "cli/table_kernels.h"
#include "cli/table_pattern.h"
#include "cli/table_ranks.h"
#include "cli/table_waits.h"
#include "common/metric.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum {
    NAME_LEAST = 24, /* places of layers' names */
    TYPE_MOST = 20,  /* of their types, where the terminal is too narrow */
    METRIC_PLACES = 11,
    BOUND_PLACES = 8,
    OTHER_PLACES = 62, /* of the columns beside names and metrics */
};

#define NOTHING_MS 0.0005
/* A bound that is less likely is asked about. */
#define SURE 0.95

/* To the right of a column. A character of several bytes takes one place. */
static void print_padded(FILE *to, const char *text, int places)
{
    for (const char *c = text; *c; c++)
        places += ((unsigned char)*c & 0xc0) == 0x80;
    (void)fprintf(to, " %*s", places, text);
}

static void print_value(FILE *to, const json_t *estimate, double scale)
{
    const json_t *mean = json_object_get(estimate, "mean");
    const json_t *group = json_object_get(estimate, "groupMean");
    char text[32] = "-";
    if (json_is_number(mean))
        (void)snprintf(text, sizeof text, "%.1f±%.1f", json_number_value(mean) * scale,
                       json_number_value(json_object_get(estimate, "standardError")) * scale);
    else if (json_is_number(group))
        (void)snprintf(text, sizeof text, "(%.1f)", json_number_value(group) * scale);
    print_padded(to, text, METRIC_PLACES);
}

/* Whether marks may have made an item's time noticeably longer, by gaps. */
static bool is_lengthened(const json_t *item)
{
    const json_t *least = json_object_get(item, "leastMillisecondsPerStep");
    const double ms = json_number_value(json_object_get(item, "millisecondsPerStep"));
    return json_is_number(least) && json_number_value(least) < 0.95 * ms;
}

/* Time and its share; busy time and idle share: a dash where one is not known. */
static void print_times(FILE *to, const json_t *item)
{
    const char *at_most = is_lengthened(item) ? "≤" : "";
    char text[32];
    const json_t *busy = json_object_get(item, "busyMillisecondsPerStep");
    const json_t *idle = json_object_get(item, "idleShare");
    if (strcmp(pp_results_text(item, "kind"), "job") == 0) {
        (void)fprintf(to, " %9s %6s", "-", "-");
    } else {
        (void)snprintf(text, sizeof text, "%s%.3f", at_most,
                       json_number_value(json_object_get(item, "millisecondsPerStep")));
        print_padded(to, text, 9);
        (void)fprintf(to, " %5.1f%%", 100 * json_number_value(json_object_get(item, "share")));
    }
    if (json_is_number(busy))
        (void)fprintf(to, " %9.3f", json_number_value(busy));
    else
        (void)fprintf(to, " %9s", "-");
    if (json_is_number(idle)) {
        (void)snprintf(text, sizeof text, "%s%.1f%%", at_most, 100 * json_number_value(idle));
        print_padded(to, text, 6);
    } else {
        (void)fprintf(to, " %6s", "-");
    }
}

/* ---- the layout: which columns there are, and how wide those of names ---- */

typedef struct layout {
    pp_name_cut layer, type;
    bool metrics[PP_METRIC_COUNT]; /* by number; those of which the table has any value */
    bool bounds;                   /* whether anything is known to be bound by something */
    double steps;                  /* that were marked */
    pp_table_view view;
    pp_name_cut kernels;
} layout;

static bool is_layer(const json_t *item)
{
    return strcmp(pp_results_text(item, "kind"), "layer") == 0;
}

/* What stands in the first column. */
static const char *name_of(const json_t *item)
{
    return pp_results_text(item, is_layer(item) ? "layer" : "kind");
}

/* Less than a thousandth of what the table shows: Identity, Dropout in evaluation. */
static bool is_nothing(const json_t *item)
{
    const json_t *ms = json_object_get(item, "millisecondsPerStep");
    const json_t *busy = json_object_get(item, "busyMillisecondsPerStep");
    return is_layer(item) && json_number_value(ms) < NOTHING_MS &&
           (!json_is_number(busy) || json_number_value(busy) < NOTHING_MS);
}

static bool has_value(const json_t *item, const char *metric)
{
    const json_t *value = pp_json_get(item, "metrics", metric, NULL);
    return json_is_number(json_object_get(value, "mean")) ||
           json_is_number(json_object_get(value, "groupMean"));
}

static void measure(layout *l, const json_t *item)
{
    const int layer = pp_name_places(name_of(item)),
              type = pp_name_places(pp_results_text(item, "type"));
    l->layer.places = layer > l->layer.places ? layer : l->layer.places;
    l->type.places = type > l->type.places ? type : l->type.places;
    l->bounds |= *pp_results_text(item, "bound") != '\0';
    pp_metric metric;
    for (int i = 0; (metric = pp_metric_in_column(i)) < PP_METRIC_COUNT; i++)
        l->metrics[metric] |= has_value(item, pp_metric_get(metric)->spec_name);
}

/* As much of the names' begin as leaves them apart; whole ones where nothing does. */
static pp_name_cut cut_of(const json_t *items, int places, int longest)
{
    size_t i, n = 0;
    json_t *item;
    pp_name_cut cut = {.places = longest};
    const char **names = calloc(json_array_size(items) + 1, sizeof *names);
    if (!names)
        return cut;
    json_array_foreach((json_t *)(uintptr_t)items, i, item)
    {
        if (!is_nothing(item))
            names[n++] = name_of(item);
    }
    if (!pp_names_cut(names, n, places, &cut))
        cut = (pp_name_cut){.places = longest};
    free(names);
    return cut;
}

/* Names get what the other columns leave of a terminal. */
static void fit(layout *l, const json_t *items, int columns)
{
    int others = OTHER_PLACES;
    for (int m = 0; m < PP_METRIC_COUNT; m++)
        others += l->metrics[m] ? METRIC_PLACES + 1 : 0;
    others += l->bounds ? BOUND_PLACES + 1 : 0;
    const int left = columns - others;
    if (columns <= 0 || l->layer.places + l->type.places <= left)
        return;
    if (l->type.places > TYPE_MOST)
        l->type = (pp_name_cut){TYPE_MOST, TYPE_MOST / 2, 0};
    const int most = left - l->type.places > NAME_LEAST ? left - l->type.places : NAME_LEAST;
    if (l->layer.places > most)
        l->layer = cut_of(items, most, l->layer.places);
}

static layout lay_out(const json_t *gpu, const pp_table_view *view)
{
    layout l = {.layer.places = NAME_LEAST, .type.places = 4, .view = *view};
    size_t i;
    json_t *item;
    const json_t *items = json_object_get(gpu, "items");
    json_array_foreach((json_t *)(uintptr_t)items, i, item)
    {
        if (!is_nothing(item))
            measure(&l, item);
    }
    l.steps = json_number_value(json_object_get(gpu, "steps"));
    fit(&l, items, view->columns);
    if (view->kernels > 0)
        l.kernels = pp_table_kernels_cut(gpu, view);
    return l;
}

static void print_calls(FILE *to, const json_t *item, double steps)
{
    const json_t *calls = json_object_get(item, "calls");
    if (is_layer(item) && json_is_number(calls) && steps > 0)
        (void)fprintf(to, " %7.2f", json_number_value(calls) / steps);
    else
        (void)fprintf(to, " %7s", "");
}

static void print_bound(FILE *to, const json_t *item)
{
    const char *bound = pp_results_text(item, "bound");
    const bool sure = json_number_value(json_object_get(item, "boundLikely")) >= SURE;
    char text[32];
    (void)snprintf(text, sizeof text, "%.7s%s", *bound ? bound : "-", *bound && !sure ? "?" : "");
    (void)fprintf(to, " %-*s", BOUND_PLACES, text);
}

static void print_item(FILE *to, const layout *l, const json_t *item)
{
    pp_name_print(to, name_of(item), &l->layer);
    (void)fputc(' ', to);
    pp_name_print(to, pp_results_text(item, "type"), &l->type);
    (void)fprintf(to, " %-9.9s", is_layer(item) ? pp_results_text(item, "phase") : "");
    print_calls(to, item, l->steps);
    print_times(to, item);
    pp_metric metric;
    for (int i = 0; (metric = pp_metric_in_column(i)) < PP_METRIC_COUNT; i++) {
        const pp_metric_info *info = pp_metric_get(metric);
        if (l->metrics[metric])
            print_value(to, pp_json_get(item, "metrics", info->spec_name, NULL), info->shown);
    }
    if (l->bounds)
        print_bound(to, item);
    (void)fputc('\n', to);
    pp_table_kernels_print(to, item, &l->view, &l->kernels);
}

/* A clock that changes is another GPU from then on: it explains why steps do. */
static void print_device(FILE *to, const json_t *device)
{
    const json_t *watts = json_object_get(device, "meanWatts");
    const json_t *clock = json_object_get(device, "smClockMHz");
    const json_t *least = json_object_get(clock, "least"), *most = json_object_get(clock, "most");
    if (json_is_number(watts))
        (void)fprintf(to, "; %.0f W", json_number_value(watts));
    if (json_is_number(least) && json_is_number(most))
        (void)fprintf(to, "; SM clock %.0f to %.0f MHz", json_number_value(least),
                      json_number_value(most));
}

static const json_t *job_of(const json_t *gpu)
{
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(gpu, "items"), i, item)
    {
        if (strcmp(pp_results_text(item, "kind"), "job") == 0)
            return item;
    }
    return NULL;
}

/* What a step takes of each rate that is known of the job, e.g. "; 512 joules a step". */
static void print_amounts(FILE *to, const json_t *job)
{
    for (int m = 0; m < PP_METRIC_COUNT; m++) {
        const pp_metric_info *info = pp_metric_get((pp_metric)m);
        const json_t *value = pp_json_get(job, "metrics", info->spec_name, "perStep", NULL);
        if (json_is_number(value) && json_number_value(value) > 0)
            (void)fprintf(to, "; %s %.4g %s a step", info->heading, json_number_value(value),
                          info->per_step);
    }
}

/* Of the job, in units of 10^12: "DRAM 4.1 of 4.9 TB/s". */
static void print_achieved(FILE *to, const json_t *job)
{
    for (int m = 0; m < PP_METRIC_COUNT; m++) {
        const pp_metric_info *info = pp_metric_get((pp_metric)m);
        const json_t *of = pp_json_get(job, "metrics", info->spec_name, NULL);
        const double achieved = json_number_value(json_object_get(of, "achieved"));
        const double peak = json_number_value(json_object_get(of, "peak"));
        if (achieved > 0 && peak > 0)
            (void)fprintf(to, "; %s %.3g of %.3g T%s/s", info->heading, achieved / 1e12,
                          peak / 1e12, info->peak == PP_PEAK_MEMORY ? "B" : "FLOP");
    }
}

static void print_steps(FILE *to, const json_t *count, const json_t *ms)
{
    (void)fprintf(to, "%lld steps of %.3f ms", (long long)json_integer_value(count),
                  json_number_value(ms));
}

static void print_idle(FILE *to, double share)
{
    (void)fprintf(to, ", in %.1f%% of which no kernel ran", 100 * share);
}

/* In how much of the training marks were; nothing in results of earlier releases. */
static void print_captures(FILE *to, const json_t *gpu)
{
    const json_int_t captures = json_integer_value(json_object_get(gpu, "captures"));
    const json_int_t first = json_integer_value(json_object_get(gpu, "firstStepNs"));
    const json_int_t last = json_integer_value(json_object_get(gpu, "lastStepNs"));
    if (captures > 0)
        (void)fprintf(to, ", in %lld capture%s over %.1f s", (long long)captures,
                      captures == 1 ? "" : "s", (double)(last - first) / 1e9);
}

/* The training's own steps; marks lengthen the others. */
static void print_counted(FILE *to, const json_t *gpu)
{
    const json_t *idle = json_object_get(gpu, "countedIdleShare");
    print_steps(to, json_object_get(gpu, "countedSteps"), json_object_get(gpu, "countedStepMs"));
    if (json_is_number(idle))
        print_idle(to, json_number_value(idle));
    (void)fprintf(to, "; %lld more were marked, of %.3f ms",
                  (long long)json_integer_value(json_object_get(gpu, "steps")),
                  json_number_value(json_object_get(gpu, "stepMs")));
    print_captures(to, gpu);
}

static void print_marked(FILE *to, const json_t *gpu)
{
    const json_t *gap = json_object_get(gpu, "gapNs");
    const double steps = json_number_value(json_object_get(gpu, "stepNs"));
    print_steps(to, json_object_get(gpu, "steps"), json_object_get(gpu, "stepMs"));
    if (json_is_number(gap) && steps > 0)
        print_idle(to, json_number_value(gap) / steps);
    print_captures(to, gpu);
}

static void print_heading(FILE *to, const layout *l, const json_t *gpu)
{
    const char *uuid = pp_results_text(gpu, "gpu");
    (void)fprintf(to, "\n%s: ", *uuid ? uuid : "no GPU");
    if (json_is_number(json_object_get(gpu, "countedStepMs")))
        print_counted(to, gpu);
    else
        print_marked(to, gpu);
    print_device(to, json_object_get(gpu, "device"));
    print_amounts(to, job_of(gpu));
    print_achieved(to, job_of(gpu));
    (void)fprintf(to,
                  " (percent ± standard error; in brackets: of a group; -: not known; "
                  "≤: with what marks may have added%s)\n",
                  l->bounds ? "; bound ?: less than 95 % sure" : "");
    (void)fprintf(to, "%-*s %-*s %-9s %7s %9s %6s %9s %6s", l->layer.places, "layer",
                  l->type.places, "type", "phase", "calls", "ms/step", "share", "busy ms", "idle");
    pp_metric metric;
    for (int i = 0; (metric = pp_metric_in_column(i)) < PP_METRIC_COUNT; i++) {
        if (l->metrics[metric])
            (void)fprintf(to, " %*s", METRIC_PLACES, pp_metric_get(metric)->heading);
    }
    if (l->bounds)
        (void)fprintf(to, " bound");
    (void)fputc('\n', to);
    if (l->view.kernels > 0 && pp_table_kernels_known(gpu))
        pp_table_kernels_heading(to);
}

/* Why busy times are not known, or "". One reason serves: it is the process's, not the layer's. */
static const char *busy_reason_of(const json_t *items)
{
    size_t i;
    json_t *item;
    json_array_foreach((json_t *)(uintptr_t)items, i, item)
    {
        if (is_layer(item) && *pp_results_text(item, "busyReason"))
            return pp_results_text(item, "busyReason");
    }
    return "";
}

static void print_reason(FILE *to, const json_t *items)
{
    if (*busy_reason_of(items))
        (void)fprintf(to, "busy times are not known: %s\n", busy_reason_of(items));
}

static void print_unknown_kernels(FILE *to, const json_t *gpu)
{
    const char *why = busy_reason_of(json_object_get(gpu, "items"));
    if (!pp_table_kernels_known(gpu))
        (void)fprintf(to, "kernels are not known%s%s\n", *why ? ": " : "", why);
}

/* Nothing of metrics of which no window was held out. */
static void print_closure(FILE *to, const json_t *closure)
{
    const char *name;
    json_t *of;
    const char *before = "closure, points:";
    json_object_foreach((json_t *)(uintptr_t)closure, name, of)
    {
        const json_t *difference = json_object_get(of, "difference");
        if (!json_is_number(difference))
            continue;
        (void)fprintf(to, "%s %s %+.2f", before, name, 100 * json_number_value(difference));
        before = ",";
    }
    if (*before == ',')
        (void)fprintf(to, " (all rows together, less what was held out of them)\n");
}

/* What speaks against a metric's values, or why there are none; "": nothing. */
static const char *doubt_of(const json_t *quality, const char *metric)
{
    const json_t *of = json_object_get(quality, metric);
    return *pp_results_text(of, "doubt") ? pp_results_text(of, "doubt")
                                         : pp_results_text(of, "untold");
}

/* By metric: what was predicted of what was held out; and why layers are not told, `by` whom. */
static void print_quality(FILE *to, const json_t *quality, const char *by)
{
    const char *name;
    json_t *of;
    const char *before = "held out and predicted:";
    json_object_foreach((json_t *)(uintptr_t)quality, name, of)
    {
        const json_t *explained = json_object_get(of, "explained");
        if (!json_is_number(explained))
            continue;
        (void)fprintf(to, "%s %s %.1f%%", before, name, 100 * json_number_value(explained));
        before = ",";
    }
    if (*before == ',')
        (void)fputs(" of its variance\n", to);
    json_object_foreach((json_t *)(uintptr_t)quality, name, of)
    {
        const char *why = doubt_of(quality, name);
        if (*why)
            (void)fprintf(to, "%s of layers is not told%s: %s\n", name, by, why);
    }
}

/* Why no layer has a value of the metric; NULL: one has, or print_quality() says it. */
static const char *why_untold(const json_t *gpu, const char *metric)
{
    const char *why = NULL;
    size_t i;
    json_t *item, *sampling;
    json_array_foreach(json_object_get(gpu, "items"), i, item)
    {
        if (!is_layer(item))
            continue;
        if (has_value(item, metric))
            return NULL;
        const json_t *value = pp_json_get(item, "metrics", metric, NULL);
        if (!why && *pp_results_text(value, "reason"))
            why = pp_results_text(value, "reason");
    }
    bool doubted = *doubt_of(json_object_get(gpu, "quality"), metric);
    json_array_foreach(json_object_get(gpu, "fine"), i, sampling)
    {
        doubted |= *doubt_of(json_object_get(sampling, "closure"), metric) != '\0';
    }
    return doubted ? NULL : why;
}

/* Metrics of one reason in one line. */
static void print_untold(FILE *to, const json_t *gpu)
{
    const char *names[PP_METRIC_COUNT], *why[PP_METRIC_COUNT];
    pp_metric metric;
    int n = 0;
    for (; (metric = pp_metric_in_column(n)) < PP_METRIC_COUNT; n++) {
        names[n] = pp_metric_get(metric)->spec_name;
        why[n] = why_untold(gpu, names[n]);
    }
    for (int i = 0; i < n; i++) {
        if (!why[i])
            continue;
        (void)fputs(names[i], to);
        for (int k = i + 1; k < n; k++) {
            if (!why[k] || strcmp(why[k], why[i]) != 0)
                continue;
            (void)fprintf(to, ", %s", names[k]);
            why[k] = NULL;
        }
        (void)fprintf(to, " of layers: %s\n", why[i]);
    }
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

/* Of each process that PM sampling tells of, of windows, and of replays. */
static void print_qualities(FILE *to, const json_t *gpu)
{
    size_t i;
    json_t *sampling;
    json_array_foreach(json_object_get(gpu, "fine"), i, sampling)
        print_quality(to, json_object_get(sampling, "closure"), " by PM sampling");
    print_quality(to, json_object_get(gpu, "quality"), "");
    print_closure(to, json_object_get(gpu, "closure"));
}

static void print_items(FILE *to, const layout *l, const json_t *items)
{
    size_t i, nothing = 0;
    json_t *item;
    json_array_foreach((json_t *)(uintptr_t)items, i, item)
    {
        if (is_nothing(item))
            nothing++;
        else
            print_item(to, l, item);
    }
    if (nothing > 0)
        (void)fprintf(
            to, "not listed: %zu row%s of layers that take less than a microsecond of a step\n",
            nothing, nothing == 1 ? "" : "s");
}

static void print_gpu(FILE *to, const json_t *gpu, bool layers, const pp_table_view *view)
{
    const json_t *items = json_object_get(gpu, "items");
    const layout l = lay_out(gpu, view);
    print_heading(to, &l, gpu);
    print_items(to, &l, items);
    print_reason(to, items);
    if (view->kernels > 0)
        print_unknown_kernels(to, gpu);
    print_qualities(to, gpu);
    if (layers)
        print_untold(to, gpu);
    print_others(to, json_object_get(gpu, "device"));
}

/* Results of earlier releases do not say why. */
static void print_none(FILE *to, const char *why)
{
    (void)fprintf(to, "precisionprobe: no step was sampled: %s\n",
                  *why ? why
                       : "no optimizer stepped in a process with torch, or it ended too soon");
}

void pp_table_print(const json_t *results, FILE *to, const pp_table_view *view)
{
    size_t i;
    json_t *gpu;
    const bool layers =
        strcmp(pp_results_text(results, "method"), pp_method_spec_name(PP_METHOD_JOB)) != 0;
    const char *why = pp_results_text(results, "unsampled");
    if (*why || json_array_size(json_object_get(results, "gpus")) == 0)
        print_none(to, why);
    json_array_foreach(json_object_get(results, "gpus"), i, gpu)
    {
        if (!*why || *pp_results_text(gpu, "gpu"))
            print_gpu(to, gpu, layers, view);
    }
    pp_table_pattern_print(to, results);
    pp_table_copies_print(to, results);
    pp_table_waits_print(to, results);
    pp_table_ranks_print(to, results);
}

int pp_table_columns(FILE *file)
{
    struct winsize size = {0};
    const int fd = fileno(file);
    return fd >= 0 && isatty(fd) && ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}
