#include "estimate/activity/activity.h"

#include "common/wire.h"
#include "estimate/regression/regression.h"

#include <stdlib.h>
#include <string.h>

pp_activity *pp_activity_free(pp_activity *a)
{
    if (!a)
        return NULL;
    for (size_t i = 0; i < a->n_processes; i++) {
        free(a->processes[i].instance);
        free(a->processes[i].kernels);
        free(a->processes[i].isolated);
        free(a->processes[i].gpu_model);
        free(a->processes[i].model);
        free(a->processes[i].digest);
        free(a->processes[i].batch);
        free(a->processes[i].pm);
        pp_strings_free(&a->processes[i].gpus);
    }
    for (size_t i = 0; i < a->n_layers; i++) {
        free(a->layers[i].name);
        free(a->layers[i].type);
    }
    pp_strings_free(&a->gpus);
    pp_strings_free(&a->sources);
    free(a->pm);
    free(a->processes);
    free(a->layers);
    free(a->batches);
    free(a->steps);
    free(a->runs);
    free(a->intervals);
    free(a->cells);
    free(a->memory);
    free(a->samples);
    free(a);
    return NULL;
}

static int compare_layers(const void *a, const void *b)
{
    const pp_activity_layer *x = a;
    const pp_activity_layer *y = b;
    if (x->process != y->process)
        return x->process < y->process ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

const pp_activity_layer *pp_activity_find_layer(const pp_activity *a, uint32_t process, int32_t id)
{
    const pp_activity_layer key = {.process = process, .id = id};
    return bsearch(&key, a->layers, a->n_layers, sizeof(*a->layers), compare_layers);
}

int pp_activity_list_gpus(const pp_activity *a, pp_strings *ret, pp_error *err)
{
    for (size_t p = 0; p < a->n_processes; p++) {
        const pp_strings *have = &a->processes[p].gpus;
        for (size_t g = 0; g < have->count || g == 0; g++) {
            if (pp_strings_add_once(ret, have->count ? have->items[g] : "", err) < 0)
                return -1;
        }
    }
    return 0;
}

bool pp_activity_is_full(const pp_activity *a)
{
    return a->n_intervals + PP_WIRE_MAX_INTERVALS > PP_REGRESSION_MAX_INTERVALS ||
           a->n_cells + PP_WIRE_MAX_CELLS > PP_REGRESSION_MAX_CELLS ||
           a->n_steps + PP_WIRE_MAX_STEPS > PP_REGRESSION_MAX_STEPS ||
           a->n_runs + PP_WIRE_MAX_RUNS > PP_REGRESSION_MAX_STEPS || a->n_batches >= UINT32_MAX;
}

bool pp_activity_take_memory(pp_activity *a, uint32_t process, int64_t steps, size_t rows)
{
    int64_t sum;
    if (rows > PP_ACTIVITY_MAX_MEMORY || a->n_memory > PP_ACTIVITY_MAX_MEMORY - rows ||
        __builtin_add_overflow(a->processes[process].memory_steps, steps, &sum))
        return false;
    a->processes[process].memory_steps = sum;
    return true;
}

int pp_activity_grow(void *array, size_t *room, size_t n, size_t more, size_t size, pp_error *err)
{
    void **base = array;
    if (n + more <= *room)
        return 0;
    const size_t wanted = (n + more) + (n + more) / 2 + 16;
    void *bigger = realloc(*base, wanted * size);
    if (!bigger)
        return pp_error_nomem(err);
    *base = bigger;
    *room = wanted;
    return 0;
}

/* ---- sampled values ---- */

static void forget_pm(pp_activity *a, uint32_t process)
{
    size_t kept = 0;
    for (size_t i = 0; i < a->n_pm; i++)
        if (a->pm[i].process != process)
            a->pm[kept++] = a->pm[i];
    a->n_pm = kept;
}

/* Room for all of a row is there. */
static void add_row(pp_activity *a, const pp_activity_pm *like, const pp_strings *sources,
                    const pp_wire_pm_row *row)
{
    for (size_t m = 0; m < sources->count && m < PP_WIRE_PM_METRICS; m++) {
        if (row->mean[m] < 0 || row->error[m] < 0)
            continue;
        pp_activity_pm *to = &a->pm[a->n_pm++];
        *to = *like;
        to->source = (uint32_t)pp_strings_index(&a->sources, sources->items[m]);
        to->layer = (int32_t)row->layer;
        to->phase = (uint8_t)row->phase;
        to->metric = (pp_metric)m;
        const double scale = pp_metric_get((pp_metric)m)->sampled_scale;
        to->mean = (double)row->mean[m] / 1e6 * (scale > 0 ? scale : 1);
        to->standard_error = (double)row->error[m] / 1e6 * (scale > 0 ? scale : 1);
        to->kernels = row->kernels;
    }
}

static void take_doubts(pp_activity_process *p, const pp_wire_pm *pm)
{
    memset(p->pm_doubt, 0, sizeof p->pm_doubt);
    p->pm_saw_gaps = false;
    for (size_t i = 0; i < pm->quality_count; i++) {
        const pp_wire_pm_quality *c = &pm->qualities[i];
        if (c->metric >= PP_METRIC_SAMPLED_COUNT)
            continue;
        p->pm_doubt[c->metric] = (uint8_t)c->doubt;
        p->pm_saw_gaps |= c->gap >= 0 && pp_metric_get((pp_metric)c->metric)->within_sms;
    }
}

int pp_activity_take_pm(pp_activity *a, size_t *room, uint32_t process, const pp_wire_pm *pm,
                        pp_error *err)
{
    forget_pm(a, process);
    for (size_t m = 0; m < pm->sources.count; m++)
        if (pp_strings_add_once(&a->sources, pm->sources.items[m], err) < 0)
            return -1;
    if (pp_strings_add_once(&a->gpus, pm->gpu, err) < 0 ||
        pp_activity_grow(&a->pm, room, a->n_pm, pm->count * PP_WIRE_PM_METRICS, sizeof *a->pm,
                         err) < 0)
        return -1;
    const pp_activity_pm like = {.process = process,
                                 .gpu = (uint32_t)pp_strings_index(&a->gpus, pm->gpu)};
    for (size_t i = 0; i < pm->count; i++)
        add_row(a, &like, &pm->sources, &pm->rows[i]);
    take_doubts(&a->processes[process], pm);
    return 0;
}

bool pp_activity_uses(const pp_activity *a, uint32_t process, const char *gpu)
{
    const pp_strings *gpus = &a->processes[process].gpus;
    return *gpu ? pp_strings_contain(gpus, gpu) : gpus->count == 0;
}

const pp_chip *pp_activity_chip(const pp_activity *a, const char *gpu)
{
    static const pp_chip unknown = {0};
    for (size_t i = 0; i < a->n_processes; i++)
        if (a->processes[i].chip.capability > 0 && pp_activity_uses(a, (uint32_t)i, gpu))
            return &a->processes[i].chip;
    return &unknown;
}

const char *pp_activity_gpu_model(const pp_activity *a, const char *gpu)
{
    for (size_t i = 0; i < a->n_processes; i++) {
        const char *model = a->processes[i].gpu_model;
        if (model && *model && pp_activity_uses(a, (uint32_t)i, gpu))
            return model;
    }
    return "";
}
