#include "estimate/activity/activity_builder.h"

#include <stdlib.h>
#include <string.h>

/* Room of the growing arrays, in elements. */
typedef struct capacities {
    size_t processes, layers, batches, steps, runs, intervals, cells, memory, samples, pm;
} capacities;

struct pp_activity_builder {
    pp_activity *activity;
    capacities room;
};

pp_activity_builder *pp_activity_builder_new(void)
{
    pp_activity_builder *b = calloc(1, sizeof *b);
    if (b)
        b->activity = calloc(1, sizeof *b->activity);
    if (b && !b->activity) {
        free(b);
        b = NULL;
    }
    return b;
}

void pp_activity_builder_free(pp_activity_builder *b)
{
    if (!b)
        return;
    (void)pp_activity_free(b->activity);
    free(b);
}

#define GROW(b, field, more, err)                                                                  \
    pp_activity_grow(&(b)->activity->field, &(b)->room.field, (b)->activity->n_##field, more,      \
                     sizeof *(b)->activity->field, err)

static int add_gpus(pp_activity *a, pp_activity_process *p, const pp_strings *gpus, pp_error *err)
{
    for (size_t i = 0; i < gpus->count; i++) {
        if (pp_strings_add_once(&p->gpus, gpus->items[i], err) < 0 ||
            pp_strings_add_once(&a->gpus, gpus->items[i], err) < 0)
            return -1;
    }
    return 0;
}

/* Of several reasons the greatest, in whatever order they come: none is less than any. */
static int set_reason(char **to, const char *reason, pp_error *err)
{
    if (!reason || (*to && strcmp(reason, *to) <= 0))
        return 0;
    char *copy = strdup(reason);
    if (!copy)
        return pp_error_nomem(err);
    free(*to);
    *to = copy;
    return 0;
}

static int set_text(char **to, const char *text, pp_error *err)
{
    char *copy = strdup(text ? text : "");
    if (!copy)
        return pp_error_nomem(err);
    free(*to);
    *to = copy;
    return 0;
}

static int describe(pp_activity *a, pp_activity_process *p, const pp_wire_batch *batch,
                    pp_error *err)
{
    const pp_wire_process *in = &batch->process;
    if (set_reason(&p->kernels, in->kernels, err) < 0 ||
        set_reason(&p->pm, batch->pm.why, err) < 0 ||
        set_reason(&p->isolated, in->isolated, err) < 0 ||
        set_text(&p->model, in->model, err) < 0 || set_text(&p->digest, in->digest, err) < 0 ||
        set_text(&p->batch, in->batch, err) < 0 ||
        (in->gpu_model && *in->gpu_model && set_text(&p->gpu_model, in->gpu_model, err) < 0))
        return -1;
    if (in->chip.capability)
        p->chip = in->chip;
    for (size_t i = 0; batch->capture.dwell == 0 && i < batch->waits.count; i++)
        if (batch->waits.rows[i].duration <= INT64_MAX - p->waited_ns)
            p->waited_ns += batch->waits.rows[i].duration;
    p->rank = (int32_t)in->rank;
    p->world_size = (int32_t)in->world_size;
    return add_gpus(a, p, &in->gpus, err);
}

/* The process that a batch is of; made where it is new. */
static int find_process(pp_activity_builder *b, const pp_wire_batch *batch, uint32_t *ret,
                        pp_error *err)
{
    pp_activity *a = b->activity;
    const char *instance = batch->instance ? batch->instance : "";
    for (size_t i = 0; i < a->n_processes; i++) {
        if (a->processes[i].process == batch->process.id &&
            strcmp(a->processes[i].instance, instance) == 0) {
            *ret = (uint32_t)i;
            return describe(a, &a->processes[i], batch, err);
        }
    }
    if (GROW(b, processes, 1, err) < 0)
        return -1;
    pp_activity_process *p = &a->processes[a->n_processes];
    *p = (pp_activity_process){.process = (int32_t)batch->process.id, .instance = strdup(instance)};
    if (!p->instance)
        return pp_error_nomem(err);
    *ret = (uint32_t)a->n_processes++;
    return describe(a, p, batch, err);
}

static pp_activity_layer *find_layer(const pp_activity *a, uint32_t process, int64_t id)
{
    for (size_t i = 0; i < a->n_layers; i++) {
        if (a->layers[i].process == process && a->layers[i].id == id)
            return &a->layers[i];
    }
    return NULL;
}

/* Reasons come while the session runs, and stay. */
static void set_reasons(pp_activity_layer *l, const pp_wire_layer *in)
{
    if (in->forward_skip)
        l->skip_reason[0] = (uint8_t)in->forward_skip;
    if (in->backward_skip)
        l->skip_reason[1] = (uint8_t)in->backward_skip;
    if (in->whole > l->whole_reason)
        l->whole_reason = (uint8_t)in->whole;
}

static int add_layer(pp_activity_builder *b, uint32_t process, const pp_wire_layer *in,
                     pp_error *err)
{
    pp_activity *a = b->activity;
    pp_activity_layer *l = find_layer(a, process, in->id);
    if (l) {
        set_reasons(l, in);
        return 0;
    }
    if (GROW(b, layers, 1, err) < 0)
        return -1;
    l = &a->layers[a->n_layers];
    *l = (pp_activity_layer){.process = process,
                             .id = (int32_t)in->id,
                             .parameters = in->parameters,
                             .name = strdup(in->name),
                             .type = strdup(in->type)};
    a->n_layers++;
    set_reasons(l, in);
    return l->name && l->type ? 0 : pp_error_nomem(err);
}

static int add_steps(pp_activity_builder *b, uint32_t index, const pp_wire_batch *batch,
                     pp_error *err)
{
    pp_activity *a = b->activity;
    if (GROW(b, steps, batch->step_count, err) < 0)
        return -1;
    for (size_t i = 0; i < batch->step_count; i++) {
        const pp_wire_step *in = &batch->steps[i];
        a->steps[a->n_steps++] = (pp_activity_step){.batch = index,
                                                    .number = in->number,
                                                    .start_ns = in->start,
                                                    .duration_ns = in->duration,
                                                    .gap_ns = in->gap};
    }
    return 0;
}

static int add_runs(pp_activity_builder *b, uint32_t process, const pp_wire_batch *batch,
                    pp_error *err)
{
    pp_activity *a = b->activity;
    if (GROW(b, runs, batch->run_count, err) < 0)
        return -1;
    for (size_t i = 0; i < batch->run_count; i++) {
        const pp_wire_run *in = &batch->runs[i];
        a->runs[a->n_runs++] = (pp_activity_run){.process = process,
                                                 .start_ns = in->start,
                                                 .duration_ns = in->duration,
                                                 .steps = in->steps};
    }
    return 0;
}

static int add_intervals(pp_activity_builder *b, uint32_t index, const pp_wire_batch *batch,
                         pp_error *err)
{
    pp_activity *a = b->activity;
    if (GROW(b, intervals, batch->interval_count, err) < 0)
        return -1;
    for (size_t i = 0; i < batch->interval_count; i++) {
        const pp_wire_interval *in = &batch->intervals[i];
        a->intervals[a->n_intervals++] = (pp_activity_interval){.batch = index,
                                                                .layer = (int32_t)in->layer,
                                                                .phase = (uint8_t)in->phase,
                                                                .start_ns = in->start,
                                                                .duration_ns = in->duration,
                                                                .kernels_ns = in->kernels,
                                                                .goes_on = in->goes_on != 0};
    }
    return 0;
}

static int add_cells(pp_activity_builder *b, uint32_t index, const pp_wire_grid *grid,
                     pp_error *err)
{
    pp_activity *a = b->activity;
    if (GROW(b, cells, grid->count, err) < 0)
        return -1;
    for (size_t i = 0; i < grid->count; i++) {
        const pp_wire_cell *in = &grid->cells[i];
        a->cells[a->n_cells++] = (pp_activity_cell){.batch = index,
                                                    .layer = (int32_t)in->layer,
                                                    .phase = (uint8_t)in->phase,
                                                    .start_ns = grid->start + in->cell * grid->cell,
                                                    .width_ns = grid->cell,
                                                    .busy_ns = in->busy,
                                                    .calls = in->calls,
                                                    .kernels_ns = in->kernels};
    }
    return 0;
}

static int add_memory(pp_activity_builder *b, uint32_t process, const pp_wire_memory *memory,
                      pp_error *err)
{
    pp_activity *a = b->activity;
    if (GROW(b, memory, memory->count, err) < 0)
        return -1;
    if (!pp_activity_take_memory(a, process, memory->steps, memory->count))
        return 0;
    for (size_t i = 0; i < memory->count; i++) {
        const pp_wire_memory_row *in = &memory->rows[i];
        a->memory[a->n_memory++] = (pp_activity_memory){.process = process,
                                                        .layer = (int32_t)in->layer,
                                                        .phase = (uint8_t)in->phase,
                                                        .peak = in->peak,
                                                        .left = in->left};
    }
    return 0;
}

int pp_activity_builder_add(pp_activity_builder *b, const pp_wire_batch *batch, pp_error *err)
{
    pp_activity *a = b->activity;
    uint32_t process = 0;
    a->truncated |= pp_activity_is_full(a);
    if (a->truncated)
        return 0;
    if (find_process(b, batch, &process, err) < 0)
        return -1;
    for (size_t i = 0; i < batch->layer_count; i++) {
        if (add_layer(b, process, &batch->layers[i], err) < 0)
            return -1;
    }
    if (batch->capture.dwell == 0 && add_memory(b, process, &batch->memory, err) < 0)
        return -1;
    if (batch->pm.gpu && pp_activity_take_pm(a, &b->room.pm, process, &batch->pm, err) < 0)
        return -1;
    if (pp_wire_is_pm_only(batch))
        return 0;
    if (GROW(b, batches, 1, err) < 0)
        return -1;
    const uint32_t index = (uint32_t)a->n_batches;
    a->batches[a->n_batches++] = (pp_activity_batch){.process = process,
                                                     .last = batch->capture.last,
                                                     .capture = batch->capture.id,
                                                     .start_ns = batch->capture.start,
                                                     .end_ns = batch->capture.end,
                                                     .dwell = batch->capture.dwell,
                                                     .background = batch->capture.background};
    return add_steps(b, index, batch, err) < 0 || add_runs(b, process, batch, err) < 0 ||
                   add_intervals(b, index, batch, err) < 0
               ? -1
               : add_cells(b, index, &batch->grid, err);
}

int pp_activity_builder_sample(pp_activity_builder *b, const char *gpu, pp_metric metric,
                               int64_t stamp_ns, double value, pp_error *err)
{
    pp_activity *a = b->activity;
    if (pp_strings_add_once(&a->gpus, gpu, err) < 0 || GROW(b, samples, 1, err) < 0)
        return -1;
    uint32_t index = 0;
    while (strcmp(a->gpus.items[index], gpu) != 0)
        index++;
    a->samples[a->n_samples++] =
        (pp_activity_sample){.gpu = index, .metric = metric, .stamp_ns = stamp_ns, .value = value};
    return 0;
}

static int by_process_and_id(const void *left, const void *right)
{
    const pp_activity_layer *a = left;
    const pp_activity_layer *b = right;
    if (a->process != b->process)
        return a->process < b->process ? -1 : 1;
    return (a->id > b->id) - (a->id < b->id);
}

const pp_activity *pp_activity_builder_get(pp_activity_builder *b)
{
    pp_activity *a = b->activity;
    if (a->n_layers > 1)
        qsort(a->layers, a->n_layers, sizeof *a->layers, by_process_and_id);
    return a;
}
