/*
 * Orion: a file of kernels (kernel_file of its configuration), one line for each that a step
 * launches, in their order: its scheduler takes the n-th line for the n-th kernel that it
 * intercepts. It splits lines at each comma and knows no quotes.
 *
 * Name: for people alone. Profile: 1 compute, 0 memory, -1 unclear. Memory_footprint: 0, as Orion's
 * own generate_file.py writes. SM_usage: SMs. Duration: ns.
 *
 * Measured is what a layer's kernels do together. Of one of them, which takes the part f of their
 * time, at most m / f of the layer's mean m is its own, and at least (m - (1 - f)) / f: SM_usage is
 * the most that it may be, and a Profile is told where the least is 60 % already.
 */
#include "cli/formats/figures.h"
#include "cli/formats/schedulers.h"
#include "common/json.h"

#include <string.h>

#define BOUND 0.6 /* roofline_analysis.py of Orion draws the line there, as Nsight Compute does */

enum { LINES_MAX = 1000000, NAME_MAX_BYTES = 512 };

static const pp_told_field fields[] = {{NULL, PP_TOLD_TEXT, false}};

typedef struct orion {
    const pp_format_job *job;
    const json_t *gpu;
    int64_t multiprocessors;
    size_t lines;
    size_t unordered; /* lines whose order within their layer is not known */
    size_t unplaced;  /* lines of which it is not known either when their layer runs */
    size_t uneven;    /* kernels that run another number of times in some steps */
} orion;

/* ---- of one kernel ---- */

/* Mean over the time in which the item's kernels run. */
static double busy_mean(const json_t *item, pp_metric metric)
{
    const json_t *m = pp_json_get(item, "metrics", pp_metric_get(metric)->spec_name, NULL);
    return strcmp(pp_figure_text(m, "basis"), "busy") == 0 ? pp_figure_number(m, "mean")
                                                           : (double)NAN;
}

static bool is_bound(const json_t *item, pp_metric metric, double part)
{
    return (busy_mean(item, metric) - (1 - part)) / part >= BOUND; /* NaN is not */
}

static int profile_of(const json_t *item, double part)
{
    if (is_bound(item, PP_METRIC_FP32_ACTIVE, part) ||
        is_bound(item, PP_METRIC_TENSOR_ACTIVE, part))
        return 1;
    return is_bound(item, PP_METRIC_DRAM_ACTIVE, part) ? 0 : -1;
}

/* All of them where nothing is known. */
static int64_t sms_of(const orion *o, const json_t *item, double part)
{
    const double most = busy_mean(item, PP_METRIC_SM_ACTIVE) / part;
    const double share = most < 1 ? most : 1;
    const int64_t sms = (int64_t)ceil(share * (double)o->multiprocessors - 1e-9);
    return sms < 1 ? 1 : sms;
}

static bool splits(char c)
{
    return c == ',' || (unsigned char)c < ' ';
}

/* As Orion's own files have it, without arguments of templates, and nothing that splits a line. */
static void copy_name(const char *name, char out[NAME_MAX_BYTES])
{
    size_t n = 0;
    for (const char *c = name; *c && *c != '<' && n + 1 < NAME_MAX_BYTES; c++)
        out[n++] = *c;
    out[n] = '\0';
    for (char *c = out; *c; c++) {
        if (splits(*c))
            *c = ';';
    }
    if (n == 0)
        (void)snprintf(out, NAME_MAX_BYTES, "(not told apart)");
}

/* Of n lines those of one of several calls: as many each, and what is left over of the first ones.
 */
static int64_t lines_of_call(int64_t n, int call, int calls)
{
    return n / calls + (call < n % calls);
}

/* Its lines in a call of the item; part: of the time of the item's kernels. Lines written, or -1.
 */
static int64_t write_kernel(orion *o, const json_t *item, const json_t *kernel, double part,
                            const pp_training_work *work, pp_error *err)
{
    char name[NAME_MAX_BYTES];
    const double calls = pp_figure_number(kernel, "callsPerStep");
    const double ms = pp_figure_number(kernel, "millisecondsPerStep");
    if (!(calls >= 0) || !(ms >= 0) || calls > LINES_MAX - (double)o->lines)
        return pp_error_field(err, "kernels",
                              "of %s %s have no number of calls of use, or too many",
                              pp_figure_text(item, "layer"), pp_figure_text(item, "phase"));
    const int64_t all = llround(calls), n = lines_of_call(all, work->call, work->calls);
    const int64_t ns = calls > 0 ? llround(ms / calls * 1e6) : 0;
    o->uneven += work->call == 0 && fabs(calls - (double)all) > 0.01;
    copy_name(pp_figure_text(kernel, "name"), name);
    for (int64_t i = 0; i < n; i++)
        (void)fprintf(o->job->to, "%s,%d,0,%lld,%lld\n", name, profile_of(item, part),
                      (long long)sms_of(o, item, part), (long long)(ns > 0 ? ns : 1));
    o->lines += (size_t)n;
    return n;
}

/* ---- of an item ---- */

/* `work`: the call of it; NULL: it is not known when it runs. */
static int write_item(orion *o, const json_t *item, const pp_training_work *work, pp_error *err)
{
    size_t i;
    json_t *kernel;
    double all = 0;
    int64_t lines = 0;
    static const pp_training_work once = {.calls = 1};
    const json_t *kernels = json_object_get(item, "kernels");
    json_array_foreach((json_t *)(uintptr_t)kernels, i, kernel) all +=
        pp_figure_number(kernel, "millisecondsPerStep");
    json_array_foreach((json_t *)(uintptr_t)kernels, i, kernel)
    {
        const double ms = pp_figure_number(kernel, "millisecondsPerStep");
        const int64_t n =
            write_kernel(o, item, kernel, all > 0 ? ms / all : 1, work ? work : &once, err);
        if (n < 0)
            return -1;
        lines += n;
    }
    if (!work)
        o->unplaced += (size_t)lines;
    else if (json_array_size(kernels) > 1)
        o->unordered += (size_t)lines;
    return 0;
}

static bool is_of(const json_t *item, const pp_training_work *work)
{
    const char *kind = pp_figure_text(item, "kind");
    const bool layer = strcmp(kind, "layer") == 0;
    return layer == (*work->layer != '\0') &&
           strcmp(pp_figure_text(item, "phase"), work->phase) == 0 &&
           strcmp(pp_figure_text(item, "layer"), work->layer) == 0;
}

static int write_placed(orion *o, const pp_training_work *work, pp_error *err)
{
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(o->gpu, "items"), i, item)
    {
        if (is_of(item, work))
            return write_item(o, item, work, err);
    }
    return 0;
}

static bool is_placed(const pp_training_recorded *r, const json_t *item)
{
    for (size_t i = 0; i < r->n_order; i++) {
        if (is_of(item, &r->order[i]))
            return true;
    }
    return strcmp(pp_figure_text(item, "kind"), "job") == 0;
}

static int write_unplaced(orion *o, const pp_training_recorded *r, pp_error *err)
{
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(o->gpu, "items"), i, item)
    {
        if (!is_placed(r, item) && write_item(o, item, NULL, err) < 0)
            return -1;
    }
    return 0;
}

/* ---- of a training ---- */

static int find_gpu(const pp_training *t, orion *o, pp_error *err)
{
    size_t i;
    json_t *gpu;
    const size_t n = pp_figure_gpus(t->results);
    if (n != 1)
        return pp_error_field(err, "gpus", "of %s are %zu: Orion shares one GPU", t->name, n);
    json_array_foreach(json_object_get(t->results, "gpus"), i, gpu)
    {
        if (*pp_figure_text(gpu, "gpu"))
            o->gpu = gpu;
    }
    if (!json_object_get(o->gpu, "kernelSteps"))
        return pp_error_field(err, "kernels", "of %s are not known: none were recorded", t->name);
    if (o->multiprocessors < 1)
        return pp_error_field(err, "chip", "of %s is not known: SM_usage is a number of its SMs",
                              t->name);
    return 0;
}

static void tell(const orion *o)
{
    FILE *to = o->job->notes;
    (void)fprintf(
        to, "precisionprobe: orion: %zu kernels of a step: num_kernels of its configuration\n",
        o->lines);
    if (o->unordered > 0)
        (void)fprintf(to,
                      "precisionprobe: orion: of %zu the order within their layer is not known\n",
                      o->unordered);
    if (o->unplaced > 0)
        (void)fprintf(to, "precisionprobe: orion: %zu stand last: it is not known when they run\n",
                      o->unplaced);
    if (o->uneven > 0)
        (void)fprintf(to, "precisionprobe: orion: %zu do not run as often in each step: rounded\n",
                      o->uneven);
}

static int write_file(const pp_format_job *job, pp_error *err)
{
    const pp_training *t = &job->trainings[0];
    const pp_training_recorded *r = t->recorded;
    orion o = {.job = job, .multiprocessors = r->multiprocessors};
    if (find_gpu(t, &o, err) < 0)
        return -1;
    (void)fputs("Name,Profile,Memory_footprint,SM_usage,Duration\n", job->to);
    for (size_t i = 0; i < r->n_order; i++) {
        if (write_placed(&o, &r->order[i], err) < 0)
            return -1;
    }
    if (write_unplaced(&o, r, err) < 0)
        return -1;
    tell(&o);
    return 0;
}

const pp_format pp_format_orion = {
    .name = "orion", .recorded = true, .single = true, .fields = fields, .write = write_file};
