#include "controller/activity.h"

#include <stdlib.h>

pp_activity *pp_activity_free(pp_activity *a)
{
    if (!a)
        return NULL;
    for (size_t i = 0; i < a->n_processes; i++) {
        free(a->processes[i].instance);
        pp_strings_free(&a->processes[i].gpus);
    }
    for (size_t i = 0; i < a->n_layers; i++) {
        free(a->layers[i].name);
        free(a->layers[i].type);
    }
    pp_strings_free(&a->gpus);
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
