#include "estimate/items/item_memory.h"

#include "common/cleanup.h"
#include "estimate/items/item_index.h"

#include <math.h>
#include <stdlib.h>

/* Bytes that a level may have: a pod may say anything of itself. */
#define MOST_BYTES 9e18

static bool tells(const pp_activity *a, uint32_t process, const char *gpu)
{
    return a->processes[process].memory_steps > 0 && pp_activity_uses(a, process, gpu);
}

/* The item that a memory's row is of; n_items or more: none. */
static size_t find(const pp_activity *a, const pp_activity_memory *m, const pp_item_index *index)
{
    const pp_activity_layer *layer =
        m->layer ? pp_activity_find_layer(a, m->process, m->layer) : NULL;
    return m->layer && !layer
               ? SIZE_MAX
               : pp_item_index_find(index, layer ? layer->name : "", (pp_phase)m->phase);
}

/* What an item had: the most of any step, and the sum of what steps left. */
typedef struct usage {
    int64_t peak;
    double live;
} usage;

static void add(usage *to, int64_t peak, double left)
{
    to->peak = peak > to->peak ? peak : to->peak;
    to->live += left;
}

/* Of a process on average, since each has an allocator of its own. `items` has each item's but the
 * job's. */
static void sum_up(const pp_activity *a, const pp_item_index *index, const pp_estimates *s,
                   usage *items, usage *job)
{
    size_t processes = 0;
    for (uint32_t p = 0; p < a->n_processes; p++)
        processes += tells(a, p, s->gpu);
    for (size_t i = 0; i < a->n_memory; i++) {
        const pp_activity_memory *m = &a->memory[i];
        if (!tells(a, m->process, s->gpu))
            continue;
        const double steps = (double)a->processes[m->process].memory_steps;
        const double left = (double)m->left / steps / (double)processes;
        const size_t item = find(a, m, index);
        add(job, m->peak, left);
        if (item < s->n_items)
            add(&items[item], m->peak, left);
    }
}

int pp_item_memory_fill(const pp_activity *activity, pp_estimates *estimates, pp_error *err)
{
    pp_item_index index;
    PP_CLEANUP_FREE usage *items = calloc(estimates->n_items + 1, sizeof *items);
    usage job = {0};
    if (!items)
        return pp_error_nomem(err);
    if (pp_item_index_make(estimates, &index, err) < 0)
        return -1;
    sum_up(activity, &index, estimates, items, &job);
    pp_item_index_done(&index);
    for (size_t i = 0; i < estimates->n_items; i++) {
        pp_estimates_item *item = &estimates->items[i];
        const usage *of = item->kind == PP_ITEM_JOB ? &job : &items[i];
        item->memory_peak = of->peak;
        item->memory_live = llround(fmax(-MOST_BYTES, fmin(of->live, MOST_BYTES)));
    }
    return 0;
}
