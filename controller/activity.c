#include "controller/activity.h"

#include "common/wire.h"
#include "controller/attribution.h"

#include <stdlib.h>

pp_activity *pp_activity_free(pp_activity *a)
{
    if (!a)
        return NULL;
    for (size_t i = 0; i < a->n_processes; i++) {
        free(a->processes[i].instance);
        free(a->processes[i].kernels);
        pp_strings_free(&a->processes[i].gpus);
    }
    for (size_t i = 0; i < a->n_layers; i++) {
        free(a->layers[i].name);
        free(a->layers[i].type);
    }
    pp_strings_free(&a->gpus);
    pp_strings_free(&a->sources);
    free(a->fine);
    free(a->processes);
    free(a->layers);
    free(a->batches);
    free(a->steps);
    free(a->intervals);
    free(a->cells);
    free(a->samples);
    free(a);
    return NULL;
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
    return a->n_intervals + PP_WIRE_MAX_INTERVALS > PP_ATTRIBUTION_MAX_INTERVALS ||
           a->n_cells + PP_WIRE_MAX_CELLS > PP_ATTRIBUTION_MAX_CELLS ||
           a->n_steps + PP_WIRE_MAX_STEPS > PP_ATTRIBUTION_MAX_STEPS || a->n_batches >= UINT32_MAX;
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
