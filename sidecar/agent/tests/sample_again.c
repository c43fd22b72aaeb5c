/*
 * sample_again [--no-stamps] [--lag-error NS] WINDOW...: what the windows that `precisionprobe run
 * --keep-windows` kept of one GPU, in order, lead to, evaluated again: a JSON object on each
 * window's lag, then one of the estimates. For studies of how right they are.
 *
 * --no-stamps   the lag by the data, about the run's own, whatever the samples' stamps say
 * --lag-error   ns, by which each lag that is used is too long
 */
#include "common/json.h"
#include "common/metric.h"
#include "sidecar/agent/window_file.h"
#include "sidecar/agent/windows.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct options {
    bool no_stamps;
    int64_t lag_error;
} options;

static void print(json_t *object)
{
    (void)json_dumpf(object, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
    (void)putchar('\n');
    json_decref(object);
}

static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static int add_window(pp_sampled *all, const char *path, const options *o, pp_error *err)
{
    pp_sampling *window = NULL;
    pp_sampling_clock clock;
    if (pp_window_file_read(path, &window, &clock, err) < 0)
        return -1;
    const pp_sampling_input in = pp_sampling_get_input(window);
    if (o->no_stamps)
        clock.likely = PP_SAMPLING_NOT_LIKELY;
    clock.error = o->lag_error;
    clock.stamped = all->stamped;
    pp_error why = {0};
    const int rc = pp_sampled_add(all, window, &clock, &why);
    json_t *told = json_pack("{s:s, s:I, s:I, s:I, s:I}", "window", path, "kernels",
                             (json_int_t)in.n_kernels, "copies", (json_int_t)in.n_copies, "samples",
                             (json_int_t)in.n_samples, "likely", (json_int_t)clock.likely);
    if (rc == 0)
        (void)json_object_update_new(told, json_pack("{s:I, s:I, s:b}", "lag", (json_int_t)all->lag,
                                                     "lag_stderr", (json_int_t)all->lag_stderr,
                                                     "stamped", all->stamped));
    else
        (void)json_object_set_new(told, "why", json_string(why.message));
    print(told);
    pp_sampling_free(window);
    return 0;
}

static json_t *of_item(const pp_sampling_item *item)
{
    json_t *told = json_pack("{s:I, s:i, s:f, s:I}", "layer", (json_int_t)item->layer, "phase",
                             item->phase, "time", item->time, "kernels", (json_int_t)item->kernels);
    for (int m = 0; m < PP_SAMPLING_METRICS; m++)
        (void)json_object_set_new(told, pp_metric_get((pp_metric)m)->spec_name,
                                  json_pack("[o, o, o]", number(item->mean[m]),
                                            number(item->stderr_of[m]), number(item->per_ns[m])));
    return told;
}

static void print_items(const pp_sampling_result *result)
{
    json_t *items = json_array();
    for (size_t i = 0; result && i < result->n; i++)
        (void)json_array_append_new(items, of_item(&result->items[i]));
    print(json_pack("{s:o}", "items", items));
}

static bool is_number(const char *text, int64_t *ret)
{
    char *end = NULL;
    errno = 0;
    *ret = strtoll(text, &end, 10);
    return end != text && !*end && errno == 0;
}

/* Numbers of layers are a process's: a file's name without that of its window. */
static bool is_of_one(const char *a, const char *b)
{
    const char *x = strrchr(a, '-'), *y = strrchr(b, '-');
    return x && y && x - a == y - b && strncmp(a, b, (size_t)(x - a)) == 0;
}

static int usage(void)
{
    (void)fprintf(stderr, "usage: sample_again [--no-stamps] [--lag-error NS] WINDOW...\n");
    return 2;
}

int main(int argc, char **argv)
{
    static const struct option known[] = {
        {"no-stamps", no_argument, NULL, 'n'}, {"lag-error", required_argument, NULL, 'e'}, {0}};
    options o = {0};
    pp_sampled all = {0};
    pp_error err = {0};
    int rc = 0;
    for (int c; (c = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        if (c == 'n')
            o.no_stamps = true;
        else if (c != 'e' || !is_number(optarg, &o.lag_error))
            return usage();
    }
    if (optind == argc)
        return usage();
    for (int i = optind; i < argc && rc == 0; i++)
        rc = !is_of_one(argv[optind], argv[i])
                 ? pp_error_set(&err, PP_ERR_INVALID, "%s is of another process or GPU", argv[i])
                 : add_window(&all, argv[i], &o, &err);
    if (rc < 0)
        (void)fprintf(stderr, "sample_again: %s\n", err.message);
    else
        print_items(all.result);
    pp_sampled_free(&all);
    return rc < 0;
}
