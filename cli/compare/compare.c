#include "cli/compare/compare.h"

#include "cli/compare/significance.h"
#include "cli/results/items.h"
#include "common/array.h"
#include "common/cleanup.h"
#include "common/metric.h"
#include "common/student.h"

#include <math.h>
#include <stdlib.h>

/* As much as rounding may make of a peak; models differ by more. */
#define SAME_PEAK 0.005

/* Longer than what is alike in a capture lasts, as a GPU's clock. */
#define LONG_NS 1e10

static const char another_model[] = "the GPUs are of different models";
static const char another_method[] = "the methods differ";
static const char another_source[] = "the sources differ";
static const char another_basis[] = "one is a mean over busy, the other over elapsed time";
static const char no_error[] = "a standard error is not known";

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

/* ---- one value ---- */

static void make_difference(pp_compared *c, double freedom)
{
    c->difference = c->value - c->other;
    c->difference_error = sqrt(c->error * c->error + c->other_error * c->other_error);
    if (isnan(c->difference_error)) {
        c->reason = no_error;
    } else if (c->difference_error > 0) {
        c->z = c->difference / c->difference_error;
        c->p = pp_student_p(c->z, freedom);
    } else {
        c->reason = "no standard error above 0 is known";
    }
}

static pp_compared unknown(const char *quantity, const char *unit, double shown)
{
    return (pp_compared){.quantity = quantity,
                         .unit = unit,
                         .shown = shown,
                         .difference = (double)NAN,
                         .difference_error = (double)NAN,
                         .z = (double)NAN,
                         .p = (double)NAN,
                         .reason = ""};
}

/* A time of a step, in ms, with what results/item_spread.h tells beside it. False where one has
 * none. */
static bool compare_time(const json_t *a, const json_t *b, const char *key, const char *quantity,
                         const char *unlike, pp_compared *ret)
{
    char error[64], freedom[64];
    (void)snprintf(error, sizeof error, "%sStandardError", key);
    (void)snprintf(freedom, sizeof freedom, "%sFreedom", key);
    pp_compared c = unknown(quantity, "ms", 1);
    c.value = number(a, key);
    c.other = number(b, key);
    c.error = number(a, error);
    c.other_error = number(b, error);
    if (isnan(c.value) || isnan(c.other))
        return false;
    if (*unlike)
        c.reason = unlike;
    else
        make_difference(
            &c, pp_student_freedom(c.error, number(a, freedom), c.other_error, number(b, freedom)));
    *ret = c;
    return true;
}

/* Whether both say something else; what one does not say, as a source, sets nothing apart. */
static bool differ(const json_t *a, const json_t *b, const char *key, const char *reason,
                   pp_compared *c)
{
    const char *x = pp_results_text(a, key), *y = pp_results_text(b, key);
    if (!*x || !*y || strcmp(x, y) == 0)
        return false;
    c->reason = reason;
    (void)snprintf(c->told, sizeof c->told, "%.70s, %.70s", x, y);
    return true;
}

/* Of what a metric's standard error is an estimate of: of windows, or of the steps that the row's
 * times are by; samples are many. */
static double freedom_of(const json_t *item, const json_t *metric)
{
    const char *method = pp_results_text(metric, "method");
    const double windows = number(metric, "windows");
    if (strcmp(method, "job") == 0 || strcmp(method, "replay") == 0)
        return isnan(windows) ? (double)INFINITY : fmax(windows - 1, 1);
    return strcmp(method, "records") == 0 ? number(item, "busyMillisecondsPerStepFreedom")
                                          : (double)INFINITY;
}

static bool compare_metric(const pp_compared_item *of, const pp_metric_info *info,
                           const char *unlike, pp_compared *ret)
{
    const json_t *a = pp_json_get(of->item, "metrics", info->spec_name, NULL);
    const json_t *b = pp_json_get(of->other, "metrics", info->spec_name, NULL);
    pp_compared c = unknown(info->column, info->unit, info->shown);
    c.value = number(a, "mean");
    c.other = number(b, "mean");
    c.error = number(a, "standardError");
    c.other_error = number(b, "standardError");
    if (isnan(c.value) || isnan(c.other))
        return false;
    if (*unlike)
        c.reason = unlike;
    else if (!differ(a, b, "method", another_method, &c) &&
             !differ(a, b, "source", another_source, &c) &&
             !differ(a, b, "basis", another_basis, &c))
        make_difference(&c, pp_student_freedom(c.error, freedom_of(of->item, a), c.other_error,
                                               freedom_of(of->other, b)));
    *ret = c;
    return true;
}

/* ---- one item ---- */

/* A level of the whole GPU, which each row has: it is compared once, in the job's. */
static bool is_repeated(const json_t *metric, bool of_job)
{
    return !of_job && strcmp(pp_results_text(metric, "method"), "job") == 0;
}

static int add_value(pp_compared_item *to, size_t *room, const pp_compared *c, pp_error *err)
{
    if (pp_array_reserve(&to->values, room, to->n + 1, sizeof *to->values, err) < 0)
        return -1;
    to->values[to->n++] = *c;
    return 0;
}

static int compare_values(pp_compared_item *to, const char *unlike, pp_error *err)
{
    static const struct {
        const char *key, *quantity;
    } times[] = {{"millisecondsPerStep", "ms_per_step"},
                 {"busyMillisecondsPerStep", "busy_ms_per_step"}};
    pp_compared c;
    size_t room = 0;
    const bool of_job = strcmp(pp_results_text(to->item, "kind"), "job") == 0;
    for (size_t i = 0; !of_job && i < sizeof times / sizeof *times; i++) {
        if (compare_time(to->item, to->other, times[i].key, times[i].quantity, unlike, &c) &&
            add_value(to, &room, &c, err) < 0)
            return -1;
    }
    for (int m = 0; m < PP_METRIC_COUNT; m++) {
        const pp_metric_info *info = pp_metric_get((pp_metric)m);
        const json_t *a = pp_json_get(to->item, "metrics", info->spec_name, NULL);
        const json_t *b = pp_json_get(to->other, "metrics", info->spec_name, NULL);
        if (!is_repeated(a, of_job) && !is_repeated(b, of_job) &&
            compare_metric(to, info, unlike, &c) && add_value(to, &room, &c, err) < 0)
            return -1;
    }
    return 0;
}

/* Rows of a GPU by what they are. NULL where memory is out. */
static json_t *rows_of(const json_t *gpu)
{
    json_t *all = json_object(), *item;
    size_t i;
    json_array_foreach(json_object_get(gpu, "items"), i, item)
    {
        PP_CLEANUP_JSON json_t *key =
            json_sprintf("%s %s %s", pp_results_text(item, "kind"), pp_item_phase(item),
                         pp_results_text(item, "layer"));
        if (key)
            (void)json_object_set(all, json_string_value(key), item);
    }
    return all;
}

static int add_item(pp_comparison *c, size_t *room, size_t gpu, const json_t *item,
                    const json_t *other, pp_error *err)
{
    if (pp_array_reserve(&c->items, room, c->n_items + 1, sizeof *c->items, err) < 0)
        return -1;
    pp_compared_item *to = &c->items[c->n_items++];
    *to = (pp_compared_item){.gpu = gpu, .item = item, .other = other};
    return item && other ? compare_values(to, c->gpus[gpu].unlike, err) : 0;
}

/* In the first's order, then what only the other has. */
static int compare_items(pp_comparison *c, size_t *room, size_t pair, const json_t *gpu,
                         const json_t *other, pp_error *err)
{
    PP_CLEANUP_JSON json_t *ours = rows_of(gpu), *theirs = rows_of(other);
    const char *key;
    json_t *item;
    if (!ours || !theirs)
        return pp_error_nomem(err);
    json_object_foreach(ours, key, item)
    {
        if (add_item(c, room, pair, item, json_object_get(theirs, key), err) < 0)
            return -1;
    }
    json_object_foreach(theirs, key, item)
    {
        if (!json_object_get(ours, key) && add_item(c, room, pair, NULL, item, err) < 0)
            return -1;
    }
    return 0;
}

/* ---- GPUs ---- */

/* A peak that any of its rows tells of a metric; NaN: none does. */
static double peak_of(const json_t *gpu, const char *metric)
{
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(gpu, "items"), i, item)
    {
        const double peak = number(pp_json_get(item, "metrics", metric, NULL), "peak");
        if (!isnan(peak))
            return peak;
    }
    return (double)NAN;
}

static bool is_unknown(const json_t *gpu)
{
    for (int m = 0; m < PP_METRIC_COUNT; m++)
        if (!isnan(peak_of(gpu, pp_metric_get((pp_metric)m)->spec_name)))
            return false;
    return !*pp_results_text(gpu, "chip");
}

/* One that is long is as good as several. */
static void count_captures(pp_compared_gpu *to, const json_t *gpu, const json_t *other)
{
    const json_t *of[] = {gpu, other};
    for (int i = 0; i < 2; i++) {
        const long long n = json_integer_value(json_object_get(of[i], "captures"));
        to->captures[i] = n;
        if (n > 0 && (to->least == 0 || n < to->least) &&
            !(n == 1 && number(of[i], "stepNs") >= LONG_NS))
            to->least = n;
    }
}

/* By what their drivers said of them, or by their peaks, which follow from that. */
static void compare_models(pp_compared_gpu *to, const json_t *gpu, const json_t *other)
{
    const char *a = pp_results_text(gpu, "chip"), *b = pp_results_text(other, "chip");
    (void)snprintf(to->chips[0], sizeof to->chips[0], "%s", a);
    (void)snprintf(to->chips[1], sizeof to->chips[1], "%s", b);
    to->unknown[0] = is_unknown(gpu);
    to->unknown[1] = is_unknown(other);
    count_captures(to, gpu, other);
    if (*a && *b) {
        to->unlike = strcmp(a, b) == 0 ? "" : another_model;
        return;
    }
    for (int m = 0; m < PP_METRIC_COUNT && !*to->unlike; m++) {
        const pp_metric_info *info = pp_metric_get((pp_metric)m);
        const double x = peak_of(gpu, info->spec_name), y = peak_of(other, info->spec_name);
        if (fabs(x - y) <= SAME_PEAK * fabs(x) || isnan(x - y))
            continue;
        to->unlike = another_model;
        (void)snprintf(to->chips[0], sizeof to->chips[0], "peak of %s %.4g", info->spec_name, x);
        (void)snprintf(to->chips[1], sizeof to->chips[1], "%.4g", y);
    }
}

/* Of steps in which nothing was marked, where both tell how sure that is. */
static void compare_steps(pp_compared_gpu *to, const json_t *gpu, const json_t *other)
{
    pp_compared counted = {0}, marked = {0};
    const bool has_counted =
        compare_time(gpu, other, "countedStepMs", "counted_ms_per_step", to->unlike, &counted);
    const bool has_marked =
        compare_time(gpu, other, "stepMs", "marked_ms_per_step", to->unlike, &marked);
    to->step =
        has_counted && (!isnan(counted.z) || !has_marked || isnan(marked.z)) ? counted : marked;
}

static const json_t *gpu_at(const pp_training *t, size_t i)
{
    return json_array_get(json_object_get(t->results, "gpus"), i);
}

static size_t count_gpus(const pp_training *t)
{
    return json_array_size(json_object_get(t->results, "gpus"));
}

/* The other training's GPU of the same UUID, else its first that has no partner of its own UUID and
 * is not taken; its number of GPUs where there is none. */
static size_t partner_of(const pp_training *t, const pp_training *other, size_t i,
                         const bool *taken)
{
    const size_t n = count_gpus(other);
    const char *uuid = pp_results_text(gpu_at(t, i), "gpu");
    size_t first = n;
    for (size_t k = 0; k < n; k++) {
        const char *theirs = pp_results_text(gpu_at(other, k), "gpu");
        bool named = false;
        if (taken[k])
            continue;
        if (strcmp(uuid, theirs) == 0)
            return k;
        if (first != n || !*theirs || !*uuid)
            continue;
        for (size_t j = 0; j < count_gpus(t) && !named; j++)
            named = strcmp(pp_results_text(gpu_at(t, j), "gpu"), theirs) == 0;
        if (!named)
            first = k;
    }
    return first;
}

static int compare_gpus(pp_comparison *c, bool *taken, pp_error *err)
{
    size_t room = 0;
    const size_t n = count_gpus(c->training), n_others = count_gpus(c->other);
    for (size_t i = 0; i < n + n_others; i++) {
        size_t k = i < n ? partner_of(c->training, c->other, i, taken) : i - n;
        const json_t *gpu = i < n ? gpu_at(c->training, i) : NULL;
        if (i >= n && taken[k])
            continue;
        const json_t *other = k < n_others ? gpu_at(c->other, k) : NULL;
        if (other)
            taken[k] = true;
        pp_compared_gpu *to = &c->gpus[c->n_gpus];
        *to = (pp_compared_gpu){.gpu = gpu ? pp_results_text(gpu, "gpu") : NULL,
                                .other = other ? pp_results_text(other, "gpu") : NULL,
                                .unlike = ""};
        compare_models(to, gpu, other);
        compare_steps(to, gpu, other);
        if (compare_items(c, &room, c->n_gpus++, gpu, other, err) < 0)
            return -1;
    }
    return 0;
}

/* ---- marks ---- */

static size_t list_steps(const pp_comparison *c, pp_compared **ret)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n_gpus; i++)
        if (c->gpus[i].step.quantity && !isnan(c->gpus[i].step.z))
            ret[n++] = &c->gpus[i].step;
    return n;
}

static size_t list_rows(const pp_comparison *c, pp_compared **ret)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n_items; i++)
        for (size_t k = 0; k < c->items[i].n; k++)
            if (!isnan(c->items[i].values[k].z))
                ret[n++] = &c->items[i].values[k];
    return n;
}

/* Judged together, at a level of their own. */
static int mark_family(pp_comparison *c, pp_compared **values, size_t n, double level,
                       pp_error *err)
{
    PP_CLEANUP_FREE double *p = calloc(n + 1, sizeof *p);
    PP_CLEANUP_FREE bool *marked = calloc(n + 1, sizeof *marked);
    if (!p || !marked)
        return pp_error_nomem(err);
    for (size_t i = 0; i < n; i++)
        p[i] = values[i]->p;
    if (pp_significance_holm(p, n, level, marked) < 0)
        return pp_error_nomem(err);
    for (size_t i = 0; i < n; i++) {
        values[i]->marked = marked[i];
        c->marked += marked[i];
    }
    c->compared += n;
    return 0;
}

/* Whether the whole step differs is asked first, and its answer must not hang on how many rows
 * there are. */
static int mark(pp_comparison *c, pp_error *err)
{
    size_t n = c->n_gpus + 1;
    for (size_t i = 0; i < c->n_items; i++)
        n += c->items[i].n;
    PP_CLEANUP_FREE pp_compared **values = calloc(n, sizeof(pp_compared *));
    if (!values)
        return pp_error_nomem(err);
    if (mark_family(c, values, list_steps(c, values), PP_SIGNIFICANCE_STEPS, err) < 0)
        return -1;
    return mark_family(c, values, list_rows(c, values), PP_SIGNIFICANCE_ROWS, err);
}

int pp_compare(const pp_training *training, const pp_training *other, pp_comparison *ret,
               pp_error *err)
{
    *ret = (pp_comparison){.training = training, .other = other};
    PP_CLEANUP_FREE bool *taken = calloc(count_gpus(other) + 1, sizeof *taken);
    ret->gpus = calloc(count_gpus(training) + count_gpus(other) + 1, sizeof *ret->gpus);
    if (!taken || !ret->gpus)
        return pp_error_nomem(err);
    return compare_gpus(ret, taken, err) < 0 ? -1 : mark(ret, err);
}

void pp_comparison_done(pp_comparison *c)
{
    for (size_t i = 0; i < c->n_items; i++)
        free(c->items[i].values);
    free(c->items);
    free(c->gpus);
    *c = (pp_comparison){0};
}
