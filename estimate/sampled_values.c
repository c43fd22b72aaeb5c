/* Sampled values (docs/sampling.md) in place of those from windows. */
#include "estimate/sampled_values.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char pp_sampled_values_none[] = "PM sampling told nothing of it";

const char pp_doubt_tenant[] =
    "others use the GPU: it is busy where no kernel of this process runs";

const char *pp_sampled_values_doubt(int doubt)
{
    static const char *const texts[] = {
        NULL, "samples differ by more than the kernels in them explain", pp_doubt_tenant};
    return doubt > 0 && (size_t)doubt < sizeof texts / sizeof *texts ? texts[doubt] : NULL;
}

/* An item by its phase and layer. */
typedef struct place {
    int phase; /**< PP_PHASE_IDLE: no item that runs */
    const char *layer;
    uint32_t item;
} place;

static int compare(const void *left, const void *right)
{
    const place *a = left;
    const place *b = right;
    return a->phase != b->phase ? a->phase - b->phase : strcmp(a->layer, b->layer);
}

static place *list_places(const pp_estimates *s)
{
    place *places = calloc(s->n_items + 1, sizeof *places);
    for (size_t i = 0; places && i < s->n_items; i++)
        places[i] = (place){(int)s->items[i].phase, s->items[i].layer, (uint32_t)i};
    if (places)
        qsort(places, s->n_items, sizeof *places, compare);
    return places;
}

static const char *layer_of(const pp_activity *a, const pp_activity_pm *f)
{
    for (size_t i = 0; f->layer > 0 && i < a->n_layers; i++)
        if (a->layers[i].process == f->process && a->layers[i].id == f->layer)
            return a->layers[i].name;
    return "";
}

/* The only process that was sampled on the GPU; -1 where there are several, or none. */
static int64_t sampled_process(const pp_activity *a, const char *gpu)
{
    int64_t found = -1;
    for (size_t i = 0; i < a->n_pm; i++) {
        if (strcmp(a->gpus.items[a->pm[i].gpu], gpu) != 0)
            continue;
        if (found >= 0 && found != a->pm[i].process)
            return -1;
        found = a->pm[i].process;
    }
    return found;
}

static int take(const pp_activity *a, const pp_activity_pm *f, pp_estimate *to, pp_error *err)
{
    char *source = strdup(a->sources.items[f->source]);
    if (!source)
        return pp_error_nomem(err);
    free(to->source);
    free(to->group_name);
    to->source = source;
    to->group_name = NULL;
    to->group_mean = to->group_standard_error = (double)NAN;
    to->mean = f->mean;
    to->standard_error = f->standard_error;
    to->windows = (double)f->kernels;
    to->method = PP_METHOD_SAMPLING;
    to->basis = PP_BASIS_BUSY;
    to->reason = NULL;
    return 0;
}

/* What windows told, if anything did, stands. */
static void refuse(const char *doubt, pp_estimate *to)
{
    if (isnan(to->mean) && !to->group_name)
        to->reason = doubt;
}

/* Whether PM sampling of any process on the GPU has seen others use it; where it has looked and
 * seen none, that counts, not what windows (`by_windows`) make of times a thousand times as long.
 */
static bool is_shared(const pp_activity *a, const char *gpu, bool by_windows)
{
    bool seen = false, looked = false;
    for (size_t i = 0; i < a->n_processes; i++) {
        const pp_activity_process *p = &a->processes[i];
        if (!pp_activity_uses(a, (uint32_t)i, gpu))
            continue;
        looked |= p->pm_saw_gaps;
        for (int m = 0; m < PP_METRIC_SAMPLED_COUNT; m++)
            seen |= p->pm_doubt[m] == PP_WIRE_DOUBT_TENANT;
    }
    return seen || (by_windows && !looked);
}

static bool is_sampled(const pp_activity *a, const char *gpu)
{
    for (size_t i = 0; i < a->n_pm; i++)
        if (strcmp(a->gpus.items[a->pm[i].gpu], gpu) == 0)
            return true;
    return false;
}

/* Of several processes' words the greatest, whatever their order. */
static const char *find_why(const pp_activity *a, const char *gpu)
{
    const char *found = "";
    for (size_t i = 0; i < a->n_processes; i++)
        if (a->processes[i].pm && strcmp(a->processes[i].pm, found) > 0 &&
            pp_activity_uses(a, (uint32_t)i, gpu))
            found = a->processes[i].pm;
    return found;
}

static int say_why(const char *text, pp_estimates *s, pp_error *err)
{
    if (asprintf(&s->pm, "the GPU was not sampled: %s", text) < 0) {
        s->pm = NULL;
        return pp_error_nomem(err);
    }
    for (size_t i = 0; i < s->n_estimates; i++)
        if (s->estimates[i].reason == pp_sampled_values_none)
            s->estimates[i].reason = s->pm;
    return 0;
}

static int take_values(const pp_activity *a, const char *gpu, int64_t process, pp_estimates *s,
                       pp_error *err)
{
    int rc = 0;
    place *places = list_places(s);
    if (!places)
        return pp_error_nomem(err);
    for (size_t i = 0; rc == 0 && i < a->n_pm; i++) {
        const pp_activity_pm *f = &a->pm[i];
        if (f->process != process || strcmp(a->gpus.items[f->gpu], gpu) != 0)
            continue;
        const place wanted = {f->phase, layer_of(a, f), 0};
        const place *at = bsearch(&wanted, places, s->n_items, sizeof *places, compare);
        pp_estimate *to = at ? pp_estimates_find(s, at->item, f->metric) : NULL;
        const char *doubt = pp_sampled_values_doubt(a->processes[process].pm_doubt[f->metric]);
        if (to && doubt)
            refuse(doubt, to);
        else if (to)
            rc = take(a, f, to, err);
    }
    free(places);
    return rc;
}

int pp_sampled_values_take(const pp_activity *a, const char *gpu, pp_estimates *s, pp_error *err)
{
    int64_t process = sampled_process(a, gpu);
    s->shared = is_shared(a, gpu, s->shared);
    if (process >= 0)
        return take_values(a, gpu, process, s, err);
    const char *text = is_sampled(a, gpu) ? "" : find_why(a, gpu);
    return *text ? say_why(text, s, err) : 0;
}
