#include "cli/results.h"

#include "common/cleanup.h"
#include "common/file.h"
#include "common/json.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

enum { FILE_MAX = 256 << 20 };

static json_t *real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

/* "" where it is not there: a file may have been written by anybody. */
static const char *text_of(const json_t *object, const char *key)
{
    const char *text = pp_json_get_string(object, key, NULL);
    return text ? text : "";
}

static json_t *text_or_null(const char *text)
{
    return text ? json_string(text) : json_null();
}

static json_t *estimate_object(const pp_estimate *e)
{
    json_t *object = json_pack("{s:o, s:o, s:o, s:s, s:o, s:o, s:o, s:o, s:o}", "mean",
                               real(e->mean), "standardError", real(e->standard_error), "windows",
                               real(e->windows), "method", pp_method_name(e->method), "source",
                               text_or_null(e->source), "group", text_or_null(e->group_name),
                               "groupMean", real(e->group_mean), "groupStandardError",
                               real(e->group_standard_error), "reason", text_or_null(e->reason));
    if (object && isfinite(e->peak)) {
        (void)json_object_set_new(object, "achieved", real(e->achieved));
        (void)json_object_set_new(object, "peak", real(e->peak));
    }
    if (object && pp_basis_name(e->basis))
        (void)json_object_set_new(object, "basis", json_string(pp_basis_name(e->basis)));
    if (object && pp_metric_get(e->metric)->per_step)
        (void)json_object_set_new(object, "perStep", real(e->amount_per_step));
    return object;
}

static json_t *integer_or_null(int64_t value)
{
    return value < 0 ? json_null() : json_integer(value);
}

static json_t *per_step(const pp_estimates *s, int64_t ns)
{
    return real(s->step_count && ns >= 0 ? (double)ns / (double)s->step_count / 1e6 : (double)NAN);
}

static json_t *item_object(const pp_estimates *s, const pp_estimates_item *i)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:o, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
                     "kind", pp_item_kind_name(i->kind), "layer", i->layer, "type", i->type,
                     "phase", pp_phase_name(i->phase), "parameters", integer_or_null(i->parameters),
                     "calls", (json_int_t)i->calls, "totalNs", (json_int_t)i->total_ns,
                     "millisecondsPerStep", per_step(s, i->total_ns), "leastMillisecondsPerStep",
                     per_step(s, i->least_ns), "share", real(i->share), "busyNs",
                     integer_or_null(i->busy_ns), "busyMillisecondsPerStep",
                     per_step(s, i->busy_ns), "idleShare", real(i->idle_share), "busyReason",
                     text_or_null(i->busy_reason), "metrics", json_object());
}

/* How values of replays hold against windows that were held out; nothing where there are none. */
static void add_closures(json_t *gpu, const pp_estimates *s)
{
    json_t *all = s->n_closures ? json_object() : NULL;
    for (size_t i = 0; all && i < s->n_closures; i++) {
        const pp_hold_out *c = &s->closures[i];
        (void)json_object_set_new(all, pp_metric_get(c->metric)->spec_name,
                                  json_pack("{s:o, s:o, s:I}", "held", real(c->held), "difference",
                                            real(c->difference), "windows",
                                            (json_int_t)c->windows));
    }
    if (all)
        (void)json_object_set_new(gpu, "closure", all);
}

static json_t *quality_object(const pp_estimates_fit *f)
{
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:I, s:o, s:o, s:o, s:o, s:o}", "method",
                     pp_method_name(PP_METHOD_REGRESSION), "doubt", text_or_null(f->doubt),
                     "untold", text_or_null(f->untold), "explained", real(f->explained), "miss",
                     real(f->miss), "expectedMiss", real(f->expected_miss), "items",
                     (json_int_t)f->items, "itemsZ", real(f->items_z), "idle", real(f->idle),
                     "idleStandardError", real(f->idle_stderr), "shiftMs", real(f->shift_ns / 1e6),
                     "shiftStandardErrorMs", real(f->shift_stderr_ns / 1e6));
}

/* How values of windows hold against windows that were held out; nothing where there are none. */
static void add_quality(json_t *gpu, const pp_estimates *s)
{
    json_t *all = json_object();
    for (size_t i = 0; i < s->n_fits; i++)
        if (s->fits[i].judged)
            (void)json_object_set_new(all, pp_metric_get(s->fits[i].metric)->spec_name,
                                      quality_object(&s->fits[i]));
    if (json_object_size(all) > 0)
        (void)json_object_set(gpu, "quality", all);
    json_decref(all);
}

json_t *pp_results_of_solution(const pp_estimates *s)
{
    json_t *items = json_array();
    for (size_t i = 0; items && i < s->n_items; i++)
        (void)json_array_append_new(items, item_object(s, &s->items[i]));
    for (size_t i = 0; items && i < s->n_estimates; i++) {
        const pp_estimate *e = &s->estimates[i];
        json_t *metrics = json_object_get(json_array_get(items, e->item), "metrics");
        (void)json_object_set_new(metrics, pp_metric_get(e->metric)->spec_name, estimate_object(e));
    }
    json_t *gpu = json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:o, s:I, s:I, s:o, s:I, s:o, s:o, s:I, s:I, s:o, s:o, s:o}",
        "gpu", s->gpu, "captures", (json_int_t)s->captures, "firstStepNs",
        (json_int_t)s->first_step_ns, "lastStepNs", (json_int_t)s->last_step_ns, "steps",
        (json_int_t)s->step_count, "stepMs", real(s->step_mean_ns / 1e6), "observedNs",
        (json_int_t)s->observed_ns, "stepNs", (json_int_t)s->step_ns, "gapNs",
        integer_or_null(s->gap_ns), "countedSteps", (json_int_t)s->counted_steps, "countedStepMs",
        real(s->counted_steps ? (double)s->counted_ns / (double)s->counted_steps / 1e6
                              : (double)NAN),
        "countedIdleShare", real(s->counted_idle), "windows", (json_int_t)s->windows, "samples",
        (json_int_t)s->samples, "lagMs", real(s->lag_ns / 1e6), "lagStandardErrorMs",
        real(s->lag_stderr_ns / 1e6), "items", items);
    if (gpu) {
        add_closures(gpu, s);
        add_quality(gpu, s);
    }
    return gpu;
}

/* ---- files ---- */

static void csv_text(FILE *f, const char *text)
{
    (void)fputc('"', f);
    for (const char *c = text; *c; c++) {
        if (*c == '"')
            (void)fputc('"', f);
        (void)fputc(*c, f);
    }
    (void)fputc('"', f);
}

static void csv_number(FILE *f, const json_t *number)
{
    (void)fputc(',', f);
    if (json_is_integer(number))
        (void)fprintf(f, "%lld", (long long)json_integer_value(number));
    else if (json_is_number(number))
        (void)fprintf(f, "%.9g", json_number_value(number));
}

static void csv_item(FILE *f, const char *gpu, const json_t *item)
{
    static const char *const texts[] = {"kind", "layer", "type", "phase"};
    static const char *const numbers[] = {"parameters",
                                          "calls",
                                          "totalNs",
                                          "millisecondsPerStep",
                                          "leastMillisecondsPerStep",
                                          "share",
                                          "busyNs",
                                          "busyMillisecondsPerStep",
                                          "idleShare"};
    csv_text(f, gpu);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        (void)fputc(',', f);
        csv_text(f, text_of(item, texts[i]));
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        csv_number(f, json_object_get(item, numbers[i]));
    for (int m = 0; m < PP_METRIC_COUNT; m++) {
        const char *name = pp_metric_get((pp_metric)m)->spec_name;
        csv_number(f, pp_json_get(item, "metrics", name, "mean", NULL));
        csv_number(f, pp_json_get(item, "metrics", name, "standardError", NULL));
    }
    (void)fputc('\n', f);
}

static void csv_write(const json_t *results, FILE *f)
{
    (void)fputs(
        "gpu,kind,layer,type,phase,parameters,calls,total_ns,ms_per_step,least_ms_per_step,share,"
        "busy_ns,busy_ms_per_step,idle_share",
        f);
    for (int m = 0; m < PP_METRIC_COUNT; m++) {
        const char *column = pp_metric_get((pp_metric)m)->column;
        (void)fprintf(f, ",%s,%s_stderr", column, column);
    }
    (void)fputc('\n', f);
    size_t i, k;
    json_t *gpu, *item;
    json_array_foreach(json_object_get(results, "gpus"), i, gpu)
    {
        json_array_foreach(json_object_get(gpu, "items"), k, item)
            csv_item(f, text_of(gpu, "gpu"), item);
    }
}

static int open_file(const char *folder, const char *name, FILE **ret, pp_error *err)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    if (n < 0 || (size_t)n >= sizeof path)
        return pp_error_set(err, PP_ERR_TOO_LARGE, "the folder's name is too long");
    *ret = fopen(path, "we");
    return *ret ? 0 : pp_error_errno(err, "writing the results");
}

static int close_file(FILE *f, pp_error *err)
{
    bool bad = ferror(f) != 0;
    return fclose(f) == 0 && !bad ? 0 : pp_error_errno(err, "writing the results");
}

int pp_results_write(const json_t *results, const char *folder, pp_error *err)
{
    FILE *f = NULL;
    if (mkdir(folder, 0777) < 0 && errno != EEXIST)
        return pp_error_errno(err, "making the folder for the results");
    if (open_file(folder, "results.json", &f, err) < 0)
        return -1;
    (void)json_dumpf(results, f, JSON_INDENT(1) | JSON_REAL_PRECISION(12));
    (void)fputc('\n', f);
    if (close_file(f, err) < 0 || open_file(folder, "layers.csv", &f, err) < 0)
        return -1;
    csv_write(results, f);
    return close_file(f, err);
}

int pp_results_read(const char *folder, json_t **ret, pp_error *err)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/results.json", folder);
    if (n < 0 || (size_t)n >= sizeof path)
        return pp_error_set(err, PP_ERR_TOO_LARGE, "the folder's name is too long");
    size_t length = 0;
    PP_CLEANUP_FREE char *text = pp_file_read(path, FILE_MAX, &length, err);
    if (!text)
        return -1;
    *ret = pp_json_parse(text, length, err);
    if (*ret && !json_is_array(json_object_get(*ret, "gpus"))) {
        json_decref(*ret);
        *ret = NULL;
        return pp_error_field(err, "gpus", "is missing: %s is no results.json", path);
    }
    return *ret ? 0 : -1;
}

/* ---- the table ---- */

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
    print_padded(to, text, 11);
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
    if (strcmp(text_of(item, "kind"), "job") == 0) {
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

static void print_item(FILE *to, const json_t *item)
{
    const char *layer = text_of(item, "layer");
    const char *kind = text_of(item, "kind");
    bool is_layer = strcmp(kind, "layer") == 0;
    (void)fprintf(to, "%-24.24s %-14.14s %-9.9s", is_layer ? layer : kind, text_of(item, "type"),
                  is_layer ? text_of(item, "phase") : "");
    print_times(to, item);
    pp_metric metric;
    for (int i = 0; (metric = pp_metric_in_column(i)) < PP_METRIC_COUNT; i++) {
        const pp_metric_info *info = pp_metric_get(metric);
        print_value(to, pp_json_get(item, "metrics", info->spec_name, NULL), info->shown);
    }
    (void)fputc('\n', to);
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
        if (strcmp(text_of(item, "kind"), "job") == 0)
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

static void print_heading(FILE *to, const json_t *gpu)
{
    const char *uuid = text_of(gpu, "gpu");
    (void)fprintf(to, "\n%s: ", *uuid ? uuid : "no GPU");
    if (json_is_number(json_object_get(gpu, "countedStepMs")))
        print_counted(to, gpu);
    else
        print_marked(to, gpu);
    print_device(to, json_object_get(gpu, "device"));
    print_amounts(to, job_of(gpu));
    print_achieved(to, job_of(gpu));
    (void)fprintf(to, " (percent ± standard error; in brackets: of a group; -: not known; "
                      "≤: with what marks may have added)\n");
    (void)fprintf(to, "%-24s %-14s %-9s %9s %6s %9s %6s", "layer", "type", "phase", "ms/step",
                  "share", "busy ms", "idle");
    pp_metric metric;
    for (int i = 0; (metric = pp_metric_in_column(i)) < PP_METRIC_COUNT; i++)
        (void)fprintf(to, " %11s", pp_metric_get(metric)->heading);
    (void)fputc('\n', to);
}

/* One reason serves: it is the process's, not the layer's. */
static void print_reason(FILE *to, const json_t *items)
{
    size_t i;
    json_t *item;
    json_array_foreach((json_t *)(uintptr_t)items, i, item)
    {
        if (strcmp(text_of(item, "kind"), "layer") != 0 || !*text_of(item, "busyReason"))
            continue;
        (void)fprintf(to, "busy times are not known: %s\n", text_of(item, "busyReason"));
        return;
    }
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
    return *text_of(of, "doubt") ? text_of(of, "doubt") : text_of(of, "untold");
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
        const json_t *value = pp_json_get(item, "metrics", metric, NULL);
        if (strcmp(text_of(item, "kind"), "layer") != 0)
            continue;
        if (json_is_number(json_object_get(value, "mean")) ||
            json_is_number(json_object_get(value, "groupMean")))
            return NULL;
        if (!why && *text_of(value, "reason"))
            why = text_of(value, "reason");
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
        (void)fprintf(to, "%s %s (%lld)", i ? "," : "others used this GPU:", text_of(other, "name"),
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

bool pp_results_lack_layers(const json_t *results)
{
    size_t i, k;
    json_t *gpu, *item;
    const json_t *gpus = json_object_get(results, "gpus");
    json_array_foreach(gpus, i, gpu)
    {
        json_array_foreach(json_object_get(gpu, "items"), k, item)
        {
            if (strcmp(text_of(item, "kind"), "layer") == 0)
                return false;
        }
    }
    return json_array_size(gpus) > 0;
}

/* Of one layer: what its replays say of SM activity. True where there is a value, or no reason. */
static bool is_replayed(const json_t *item, const char **why)
{
    const json_t *active = pp_json_get(item, "metrics", "SMActive", NULL);
    if (strcmp(text_of(item, "kind"), "layer") != 0)
        return false;
    if (json_is_number(json_object_get(active, "mean")))
        return true;
    if (!**why && *text_of(active, "reason"))
        *why = text_of(active, "reason");
    return false;
}

const char *pp_results_why_not_replayed(const json_t *results)
{
    size_t i, k;
    json_t *gpu, *item;
    const char *why = "";
    json_array_foreach(json_object_get(results, "gpus"), i, gpu)
    {
        json_array_foreach(json_object_get(gpu, "items"), k, item)
        {
            if (is_replayed(item, &why))
                return NULL;
        }
    }
    return *why ? why : NULL;
}

void pp_results_print(const json_t *results, FILE *to)
{
    size_t i, k;
    json_t *gpu, *item;
    if (json_array_size(json_object_get(results, "gpus")) == 0)
        (void)fprintf(to, "precisionprobe: no step was sampled: no optimizer stepped in a process "
                          "with torch, or it ended too soon\n");
    json_array_foreach(json_object_get(results, "gpus"), i, gpu)
    {
        const json_t *items = json_object_get(gpu, "items");
        print_heading(to, gpu);
        json_array_foreach((json_t *)(uintptr_t)items, k, item) print_item(to, item);
        print_reason(to, items);
        print_qualities(to, gpu);
        if (strcmp(text_of(results, "method"), pp_method_spec_name(PP_METHOD_JOB)) != 0)
            print_untold(to, gpu);
        print_others(to, json_object_get(gpu, "device"));
    }
}
