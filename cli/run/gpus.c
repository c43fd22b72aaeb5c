#include "cli/run/gpus.h"

#include "cli/run/processes.h"

#include "sidecar/gpu/nvml.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    GPUS_MAX = 64,
    OTHERS_MAX = 8,     /* of a GPU, which are told */
    PROCESSES_MAX = 64, /* of a GPU, which are looked at */
    LOOK_EVERY = 10,    /* readings */
};

/* A process that is not the training's. */
typedef struct other {
    uint32_t pid;
    char name[16];
} other;

/* Least, most, sum and number of what was read; of numbers that are not known nothing. */
typedef struct range {
    double least, most, first, last, sum;
    int64_t n, changes;
} range;

typedef struct gpu {
    char *uuid;
    pp_nvml_gpu *reader; /* NULL: it cannot be read */
    range watts, joules, sm_mhz;
    unsigned readings;
    other others[OTHERS_MAX];
    size_t n_others;
} gpu;

struct pp_gpus {
    pp_nvml *nvml; /* NULL: none */
    gpu items[GPUS_MAX];
    size_t count;
    pid_t training; /* 0: not known */
    char why[256];
};

pp_gpus *pp_gpus_new(void)
{
    pp_error err = {0};
    pp_gpus *g = calloc(1, sizeof *g);
    if (g && pp_nvml_open(&g->nvml, &err) < 0)
        (void)snprintf(g->why, sizeof g->why, "%s", err.message);
    return g;
}

void pp_gpus_free(pp_gpus *g)
{
    if (!g)
        return;
    for (size_t i = 0; i < g->count; i++) {
        pp_nvml_gpu_close(g->items[i].reader);
        free(g->items[i].uuid);
    }
    pp_nvml_close(g->nvml);
    free(g);
}

void pp_gpus_watch(pp_gpus *g, pid_t training)
{
    g->training = training;
}

void pp_gpus_use(pp_gpus *g, const char *uuid)
{
    pp_error err = {0};
    for (size_t i = 0; i < g->count; i++) {
        if (strcmp(g->items[i].uuid, uuid) == 0)
            return;
    }
    char *copy = g->count < GPUS_MAX && g->nvml ? strdup(uuid) : NULL;
    if (!copy)
        return;
    gpu *added = &g->items[g->count++];
    *added = (gpu){.uuid = copy};
    if (pp_nvml_gpu_open(g->nvml, uuid, &added->reader, &err) < 0)
        (void)snprintf(g->why, sizeof g->why, "%s", err.message);
    else if (!pp_nvml_gpu_has_gpm(added->reader))
        (void)snprintf(g->why, sizeof g->why, "%s has no GPM counters: utilisation and memory only",
                       uuid);
}

static void note(range *r, double value)
{
    if (isnan(value))
        return;
    r->least = r->n == 0 || value < r->least ? value : r->least;
    r->most = r->n == 0 || value > r->most ? value : r->most;
    r->first = r->n == 0 ? value : r->first;
    r->changes += r->n > 0 && value != r->last;
    r->last = value;
    r->sum += value;
    r->n++;
}

static json_t *real(const range *r, double value)
{
    return r->n > 0 ? json_real(value) : json_null();
}

/* NULL: there is none. */
static json_t *others_array(const gpu *g)
{
    json_t *all = g->n_others ? json_array() : NULL;
    for (size_t i = 0; all && i < g->n_others; i++)
        (void)json_array_append_new(all,
                                    json_pack("{s:I, s:s}", "pid", (json_int_t)g->others[i].pid,
                                              "name", g->others[i].name));
    return all;
}

static json_t *device_object(const gpu *g)
{
    const range *clock = &g->sm_mhz;
    return json_pack("{s:o, s:o, s:o*, s:{s:o, s:o, s:o, s:I}}", "meanWatts",
                     real(&g->watts, g->watts.sum / (double)g->watts.n), "joules",
                     real(&g->joules, g->joules.last - g->joules.first), "others", others_array(g),
                     "smClockMHz", "mean", real(clock, clock->sum / (double)clock->n), "least",
                     real(clock, clock->least), "most", real(clock, clock->most), "changes",
                     (json_int_t)clock->changes);
}

int pp_gpus_describe(const pp_gpus *g, json_t *to, pp_error *err)
{
    const char *uuid = json_string_value(json_object_get(to, "gpu"));
    for (size_t i = 0; uuid && i < g->count; i++)
        if (strcmp(g->items[i].uuid, uuid) == 0 &&
            json_object_set_new(to, "device", device_object(&g->items[i])) < 0)
            return pp_error_nomem(err);
    return 0;
}

static bool is_silent(const pp_nvml_reading *r)
{
    bool silent = true;
    for (int m = 0; m < PP_METRIC_COUNT; m++)
        silent = silent && isnan(r->values[m]);
    return silent;
}

static int add(const gpu *one, const pp_nvml_reading *r, pp_activity_builder *to, pp_error *err)
{
    for (int m = 0; m < PP_METRIC_COUNT; m++) {
        if (!isnan(r->values[m]) && pp_activity_builder_sample(to, one->uuid, (pp_metric)m,
                                                               r->stamp_ns, r->values[m], err) < 0)
            return -1;
    }
    return 0;
}

static void add_other(gpu *g, uint32_t pid)
{
    for (size_t i = 0; i < g->n_others; i++)
        if (g->others[i].pid == pid)
            return;
    if (g->n_others == OTHERS_MAX)
        return;
    other *o = &g->others[g->n_others];
    o->pid = pid;
    pp_process_name((pid_t)pid, o->name, sizeof o->name);
    g->n_others += *o->name != '\0'; /* one that is gone may have been the training's */
}

/* The driver's numbers are its own namespace's: they say something only where one of them is of the
 * training. */
static void look_at_processes(const pp_gpus *all, gpu *g)
{
    uint32_t pids[PROCESSES_MAX];
    bool ours[PROCESSES_MAX], some = false;
    const size_t n = pp_nvml_gpu_processes(g->reader, pids, PROCESSES_MAX);
    for (size_t i = 0; i < n; i++) {
        ours[i] = pp_process_descends((pid_t)pids[i], all->training);
        some |= ours[i];
    }
    for (size_t i = 0; some && i < n; i++)
        if (!ours[i])
            add_other(g, pids[i]);
}

int pp_gpus_read(pp_gpus *g, pp_activity_builder *to, pp_error *err)
{
    for (size_t i = 0; i < g->count; i++) {
        pp_nvml_reading reading;
        if (!g->items[i].reader)
            continue;
        if (g->training > 0 && g->items[i].readings++ % LOOK_EVERY == 0)
            look_at_processes(g, &g->items[i]);
        pp_nvml_gpu_read(g->items[i].reader, &reading);
        note(&g->items[i].watts, reading.watts);
        note(&g->items[i].joules, reading.joules);
        note(&g->items[i].sm_mhz, reading.sm_mhz);
        if (is_silent(&reading) && !*g->why)
            (void)snprintf(g->why, sizeof g->why, "%s does not answer any more", g->items[i].uuid);
        if (add(&g->items[i], &reading, to, err) < 0)
            return -1;
    }
    return 0;
}

const char *pp_gpus_why(const pp_gpus *g)
{
    return g->why;
}
