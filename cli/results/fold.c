#include "cli/results/fold.h"

#include "cli/results/results.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define TOLD 0.95 /* of the time, that a mean is of */

static double number_of(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static bool has_number(const json_t *object, const char *key)
{
    return json_is_number(json_object_get(object, key));
}

static bool is_layer(const json_t *item)
{
    const char *type = json_string_value(json_object_get(item, "type"));
    return strcmp(pp_results_text(item, "kind"), "layer") == 0 && type && type[0] != '(';
}

/* ---- sums ---- */

/* null where one of them is not known; integers stay such. */
static json_t *sum_of(const json_t *members, const char *key)
{
    double sum = 0;
    json_int_t whole = 0;
    bool integers = true;
    size_t i;
    json_t *one;
    json_array_foreach(members, i, one)
    {
        const json_t *value = json_object_get(one, key);
        if (!json_is_number(value))
            return json_null();
        integers = integers && json_is_integer(value);
        whole += json_integer_value(value);
        sum += json_number_value(value);
    }
    return integers ? json_integer(whole) : json_real(sum);
}

static json_t *largest_of(const json_t *members, const char *key)
{
    json_t *most = NULL;
    size_t i;
    json_t *one;
    json_array_foreach(members, i, one)
    {
        json_t *value = json_object_get(one, key);
        if (json_is_integer(value) &&
            (!most || json_integer_value(value) > json_integer_value(most)))
            most = value;
    }
    return most ? json_incref(most) : NULL;
}

static int add_number(json_t *to, const char *key, double value)
{
    return json_object_set_new(to, key, json_real(number_of(to, key) + value));
}

/* Of the time of all, which bound most of it has. */
static int add_bound(json_t *to, const json_t *members)
{
    json_t *times = json_object(), *one, *time;
    const char *bound, *best = NULL;
    double all = 0;
    size_t i;
    int rc = 0;
    json_array_foreach(members, i, one)
    {
        bound = pp_results_text(one, "bound");
        all += number_of(one, "totalNs");
        if (*bound)
            rc |=
                add_number(times, bound, number_of(one, "totalNs") * number_of(one, "boundLikely"));
    }
    json_object_foreach(times, bound, time) if (json_real_value(time) >
                                                (best ? number_of(times, best) : 0)) best = bound;
    const bool known = best && all > 0;
    rc |= json_object_set_new(to, "bound", best ? json_string(best) : json_null());
    rc |= json_object_set_new(to, "boundLikely",
                              known ? json_real(number_of(times, best) / all) : json_null());
    json_decref(times);
    return rc;
}

/* ---- metrics ---- */

static bool same_text(const json_t *a, const json_t *b, const char *key)
{
    const char *x = json_string_value(json_object_get(a, key)),
               *y = json_string_value(json_object_get(b, key));
    return x && y ? strcmp(x, y) == 0 : x == y;
}

static bool is_alike(const json_t *a, const json_t *b)
{
    return same_text(a, b, "method") && same_text(a, b, "source") && same_text(a, b, "basis");
}

/* The time that a value of a row is the mean of. */
static double time_of(const json_t *item, const json_t *metric)
{
    const char *basis = json_string_value(json_object_get(metric, "basis"));
    const bool busy = basis && strcmp(basis, "busy") == 0;
    return number_of(item, busy ? "busyNs" : "totalNs");
}

static json_t *metric_of(const json_t *item, const char *name)
{
    return json_object_get(json_object_get(item, "metrics"), name);
}

/* The first row's value that is told, after which the others must be. */
static json_t *pattern_of(const json_t *members, const char *name)
{
    size_t i;
    json_t *one;
    json_array_foreach(
        members, i, one) if (has_number(metric_of(one, name), "mean")) return metric_of(one, name);
    return NULL;
}

/* Sums over the rows that have a value of the kind that is added up. */
typedef struct value_sums {
    double all, told; /* ns: of all rows, and of those */
    double value, error, achieved, windows;
    bool rated; /* each of them tells what it achieved */
    bool sure;  /* each of them has a standard error */
} value_sums;

static void add_value(value_sums *s, const json_t *metric, double ns)
{
    s->told += ns;
    s->value += ns * number_of(metric, "mean");
    s->error += ns * number_of(metric, "standardError");
    s->sure = s->sure && has_number(metric, "standardError");
    s->achieved += ns * number_of(metric, "achieved");
    s->windows += number_of(metric, "windows");
    s->rated = s->rated && has_number(metric, "achieved");
}

static json_t *number_or_null(bool known, double value)
{
    return known ? json_real(value) : json_null();
}

/* NULL: out of memory. */
static json_t *metric_object(const json_t *like, const value_sums *s)
{
    static const char *const kept[] = {"method", "source", "basis", "peak"};
    const bool told = s->told > 0 && s->told >= TOLD * s->all;
    json_t *made = json_pack(
        "{so, so, so, ss?, so}", "mean", number_or_null(told, s->value / s->told), "standardError",
        number_or_null(told && s->sure, s->error / s->told), "windows", json_real(s->windows),
        "reason", told ? NULL : "layers in it have no value of their own", "achieved",
        number_or_null(told && s->rated, s->achieved / s->told));
    for (size_t k = 0; made && told && k < sizeof kept / sizeof *kept; k++)
        if (json_object_get(like, kept[k]))
            (void)json_object_set(made, kept[k], json_object_get(like, kept[k]));
    return made;
}

static json_t *mean_of(const json_t *members, const char *name)
{
    const json_t *like = pattern_of(members, name);
    value_sums s = {.rated = true, .sure = true};
    size_t i;
    json_t *one;
    json_array_foreach(members, i, one)
    {
        const json_t *metric = metric_of(one, name);
        const double ns = time_of(one, like);
        s.all += ns;
        if (has_number(metric, "mean") && is_alike(metric, like))
            add_value(&s, metric, ns);
    }
    return metric_object(like, &s);
}

static int add_metrics(json_t *to, const json_t *members)
{
    json_t *metrics = json_object();
    const char *name;
    json_t *unused;
    int rc = 0;
    json_object_foreach(json_object_get(json_array_get(members, 0), "metrics"), name, unused) rc |=
        json_object_set_new(metrics, name, mean_of(members, name));
    return rc | json_object_set_new(to, "metrics", metrics);
}

/* ---- kernels ---- */

static int add_kernel(json_t *by_name, const json_t *kernel)
{
    const char *name = pp_results_text(kernel, "name");
    json_t *to = json_object_get(by_name, name);
    if (!to)
        return json_object_set_new(by_name, name, json_deep_copy(kernel));
    return add_number(to, "callsPerStep", number_of(kernel, "callsPerStep")) |
           add_number(to, "millisecondsPerStep", number_of(kernel, "millisecondsPerStep"));
}

static int add_kernels(json_t *to, const json_t *members)
{
    json_t *by_name = json_object(), *kernels = json_array(), *one, *kernel;
    const char *name;
    bool any = false;
    int rc = 0;
    size_t i, j;
    json_array_foreach(members, i, one)
    {
        any |= json_is_array(json_object_get(one, "kernels"));
        json_array_foreach(json_object_get(one, "kernels"), j, kernel) rc |=
            add_kernel(by_name, kernel);
    }
    json_object_foreach(by_name, name, kernel) rc |= json_array_append(kernels, kernel);
    if (any)
        rc |= json_object_set(to, "kernels", kernels);
    json_decref(kernels);
    json_decref(by_name);
    return rc;
}

/* ---- rows ---- */

static int add_times(json_t *to, const json_t *members)
{
    static const char *const sums[] = {
        "parameters", "totalNs", "millisecondsPerStep",    "leastMillisecondsPerStep",
        "share",      "busyNs",  "busyMillisecondsPerStep"};
    int rc = 0;
    for (size_t k = 0; k < sizeof sums / sizeof *sums; k++)
        rc |= json_object_set_new(to, sums[k], sum_of(members, sums[k]));
    const double total = number_of(to, "totalNs");
    const bool known = has_number(to, "busyNs") && total > 0;
    rc |= json_object_set_new(to, "idleShare",
                              known ? json_real(1 - number_of(to, "busyNs") / total) : json_null());
    json_t *peak = largest_of(members, "memoryPeakBytes");
    if (peak)
        rc |= json_object_set_new(to, "memoryPeakBytes", peak) |
              json_object_set_new(to, "memoryLiveBytes", sum_of(members, "memoryLiveBytes"));
    return rc;
}

/* The module's own row, of whose name the others' begin with. */
static const json_t *own_of(const json_t *members, const char *name)
{
    size_t i;
    json_t *one;
    json_array_foreach(members, i,
                       one) if (strcmp(pp_results_text(one, "layer"), name) == 0) return one;
    return NULL;
}

/* Times of layers in one module go together: what their sum is off by does not follow from what
 * each is. */
static void forget_errors(json_t *to)
{
    static const char *const keys[] = {
        "millisecondsPerStepStandardError", "millisecondsPerStepFreedom",
        "busyMillisecondsPerStepStandardError", "busyMillisecondsPerStepFreedom"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        (void)json_object_del(to, keys[i]);
}

static int make_row(json_t *to, const json_t *members, size_t length)
{
    forget_errors(to);
    char type[32];
    json_t *name = json_stringn(pp_results_text(json_array_get(members, 0), "layer"), length);
    const json_t *own = name ? own_of(members, json_string_value(name)) : NULL;
    const size_t n = json_array_size(members);
    (void)snprintf(type, sizeof type, "(%zu layer%s)", n, n == 1 ? "" : "s");
    int rc = json_object_set_new(to, "layer", name);
    rc |= json_object_set_new(to, "type",
                              own ? json_incref(json_object_get(own, "type")) : json_string(type));
    rc |= json_object_set_new(to, "calls",
                              own ? json_incref(json_object_get(own, "calls")) : json_null());
    return rc | add_times(to, members) | add_bound(to, members) | add_metrics(to, members) |
           add_kernels(to, members);
}

/* The rows that go together, by phase and the name that they have in common. NULL: out of memory.
 */
static json_t *members_of(json_t *groups, const json_t *item, int depth)
{
    const char *name = pp_results_text(item, "layer");
    json_t *key = json_sprintf("%s %.*s", pp_results_text(item, "phase"),
                               (int)pp_fold_part(name, depth), name);
    json_t *members = key ? json_object_get(groups, json_string_value(key)) : NULL;
    if (key && !members) {
        members = json_array();
        if (json_object_set_new(groups, json_string_value(key), members) != 0)
            members = NULL;
    }
    json_decref(key);
    return members;
}

/* The row of a group stands where the first of it has stood. */
static int gather(const json_t *items, int depth, json_t *groups, json_t *rows)
{
    size_t i;
    json_t *item;
    json_array_foreach(items, i, item)
    {
        json_t *members = is_layer(item) ? members_of(groups, item, depth) : NULL;
        if (is_layer(item) && !members)
            return -1;
        if (json_array_size(members) == 0 && json_array_append(rows, item) != 0)
            return -1;
        if (members && json_array_append_new(members, json_copy(item)) != 0)
            return -1;
    }
    return 0;
}

static int fold_items(json_t *gpu, int depth)
{
    json_t *groups = json_object(), *rows = json_array(), *row;
    int rc = groups && rows ? gather(json_object_get(gpu, "items"), depth, groups, rows) : -1;
    size_t i;
    json_array_foreach(rows, i, row)
    {
        const json_t *members = rc == 0 && is_layer(row) ? members_of(groups, row, depth) : NULL;
        const char *name = pp_results_text(row, "layer");
        const size_t length = pp_fold_part(name, depth);
        if (json_array_size(members) > 1 || (members && length < strlen(name)))
            rc = make_row(row, members, length);
    }
    if (rc == 0)
        rc = json_object_set(gpu, "items", rows);
    json_decref(groups);
    json_decref(rows);
    return rc;
}

int pp_results_fold(json_t *results, int depth, pp_error *err)
{
    size_t i;
    json_t *gpu;
    json_array_foreach(json_object_get(results, "gpus"), i,
                       gpu) if (fold_items(gpu, depth) != 0) return pp_error_nomem(err);
    return 0;
}
