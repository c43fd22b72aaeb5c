#include "sidecar/agent/graphs.h"

#include "common/array.h"
#include "sidecar/agent/graph_match.h"

#include <stdlib.h>
#include <string.h>

typedef struct graph {
    uint32_t number, region;
    size_t first, count; /* of the launches; 0: nothing is told of it */
} graph;

struct pp_graphs {
    graph *graphs;
    size_t graph_count, graph_capacity;
    pp_ring_launch *launches;
    size_t launch_count, launch_capacity;
    pp_graph_kernel *names; /* by their numbers less 1 */
    size_t name_count, name_capacity;
    char part[PP_RING_KERNEL_NAME]; /* of a name that is not whole yet */
    size_t part_size;
    uint32_t named;
    pp_graphs_told told;
    uint8_t why[PP_RING_LAYERS + 1]; /* by region: a pp_whole_reason */
    /* Of the run that is looked at. */
    pp_graph_kernel *kernels;
    uint32_t *layers;
    size_t *places; /* in the step */
    size_t kernel_capacity, layer_capacity, place_capacity;
    bool *beside; /* of each run of the step: one of another thread was open meanwhile */
    size_t beside_capacity;
};

enum { LOOK_BACK = 64 }; /* runs that may be open at once */

pp_graphs *pp_graphs_new(void)
{
    return calloc(1, sizeof(pp_graphs));
}

void pp_graphs_free(pp_graphs *g)
{
    if (!g)
        return;
    free(g->graphs);
    free(g->launches);
    free(g->names);
    free(g->kernels);
    free(g->layers);
    free(g->places);
    free(g->beside);
    free(g);
}

uint32_t pp_graphs_named(const pp_graphs *g)
{
    return g->named;
}

uint32_t pp_graphs_count(const pp_graphs *g)
{
    return (uint32_t)g->graph_count;
}

pp_graphs_told pp_graphs_so_far(const pp_graphs *g)
{
    return g->told;
}

uint8_t pp_graphs_why(const pp_graphs *g, uint32_t region)
{
    return region <= PP_RING_LAYERS ? g->why[region] : PP_WHOLE_NOT;
}

static int add_name(pp_graphs *g, pp_error *err)
{
    if (pp_array_reserve(&g->names, &g->name_capacity, g->name_count + 1, sizeof *g->names, err) <
        0)
        return -1;
    g->part[g->part_size] = '\0';
    g->names[g->name_count++] = (pp_graph_kernel){.name = pp_ring_hash(g->part, g->part_size),
                                                  .kind = pp_kernel_kind_of(g->part)};
    g->part_size = 0;
    return 0;
}

int pp_graphs_name(pp_graphs *g, const char *bytes, size_t n, pp_error *err)
{
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] == '\0' && add_name(g, err) < 0)
            return -1;
        if (bytes[i] != '\0' && g->part_size < sizeof g->part - 1)
            g->part[g->part_size++] = bytes[i];
        g->named++;
    }
    return 0;
}

int pp_graphs_add(pp_graphs *g, const pp_ring_graph *graph_, const pp_ring_launch *launches,
                  uint32_t layers, pp_error *err)
{
    graph new = {.number = graph_->graph,
                 .region = graph_->region,
                 .first = g->launch_count,
                 .count = graph_->count <= PP_RING_LAUNCHES - g->launch_count ? graph_->count : 0};
    if (pp_array_reserve(&g->graphs, &g->graph_capacity, g->graph_count + 1, sizeof *g->graphs,
                         err) < 0 ||
        pp_array_reserve(&g->launches, &g->launch_capacity, g->launch_count + new.count,
                         sizeof *g->launches, err) < 0)
        return -1;
    if (new.region == 0) /* pieces of several layers are in none */
        new.count = 0;
    for (size_t i = 0; i < new.count; i++)
        if (launches[i].layer == 0 || launches[i].layer > layers)
            new.count = 0;
    if (new.count > 0)
        memcpy(g->launches + g->launch_count, launches, new.count * sizeof *launches);
    g->launch_count += new.count;
    g->graphs[g->graph_count++] = new;
    return 0;
}

/* NULL: nothing is known. The latest counts: a region may be told anew. */
static const graph *find(const pp_graphs *g, uint32_t number, uint32_t region)
{
    for (size_t i = g->graph_count; i-- > 0;)
        if (g->graphs[i].number == number && g->graphs[i].region == region)
            return g->graphs[i].count > 0 ? &g->graphs[i] : NULL;
    return NULL;
}

static bool is_of(const pp_graph_run *run, const pp_graphs_kernel *kernel)
{
    return kernel->in > 0 && (kernel->thread == PP_THREAD_UNKNOWN || kernel->thread == run->thread);
}

/* The first kernel that was launched then or later. */
static size_t first_since(const pp_graphs_kernel *kernels, size_t n, int64_t time)
{
    size_t low = 0;
    while (low < n) {
        const size_t middle = low + (n - low) / 2;
        if (kernels[middle].launched < time)
            low = middle + 1;
        else
            n = middle;
    }
    return low;
}

static pp_graph_kernel named(const pp_graphs *g, uint32_t number)
{
    return number > 0 && number <= g->name_count ? g->names[number - 1] : (pp_graph_kernel){0};
}

/* Runs that were open side by side: they are in order of their ends. */
static int mark_beside(pp_graphs *g, const pp_graph_run *runs, size_t count, pp_error *err)
{
    if (pp_array_reserve(&g->beside, &g->beside_capacity, count + 1, sizeof *g->beside, err) < 0)
        return -1;
    memset(g->beside, 0, (count + 1) * sizeof *g->beside);
    for (size_t r = 0; r < count; r++)
        for (size_t i = r; i-- > 0 && r - i <= LOOK_BACK && runs[i].end >= runs[r].start;)
            if (runs[i].thread != runs[r].thread)
                g->beside[i] = g->beside[r] = true;
    return 0;
}

/* The kernels of a run, and the layer whose piece all of them are in; 0: they are in several, or
 * may be another thread's. Returns how many, or -1. */
static long gather(pp_graphs *g, const pp_graph_run *run, bool beside,
                   const pp_graphs_kernel *kernels, size_t n, uint32_t *ret_region, pp_error *err)
{
    size_t count = 0;
    if (pp_array_reserve(&g->kernels, &g->kernel_capacity, n + 1, sizeof *g->kernels, err) < 0 ||
        pp_array_reserve(&g->layers, &g->layer_capacity, n + 1, sizeof *g->layers, err) < 0 ||
        pp_array_reserve(&g->places, &g->place_capacity, n + 1, sizeof *g->places, err) < 0)
        return -1;
    for (size_t i = first_since(kernels, n, run->start); i < n && kernels[i].launched <= run->end;
         i++) {
        if (!is_of(run, &kernels[i]))
            continue;
        *ret_region = count == 0 ? kernels[i].in : *ret_region;
        if (kernels[i].in != *ret_region || (beside && kernels[i].thread == PP_THREAD_UNKNOWN))
            *ret_region = 0;
        g->places[count] = i;
        g->kernels[count++] = named(g, kernels[i].name);
    }
    return (long)count;
}

/* What is seen last stands, and where kernels of several regions are in a run it is nobody's. */
static void note(pp_graphs *g, uint32_t region, const pp_graph_run *run, bool known)
{
    const pp_whole_reason why = known             ? PP_WHOLE_UNFIT
                                : run->graph == 0 ? PP_WHOLE_UNRECORDED
                                                  : PP_WHOLE_SHARED;
    g->told.unfit += known;
    g->told.unknown += !known;
    if (region > 0 && region <= PP_RING_LAYERS)
        g->why[region] = (uint8_t)why;
}

int pp_graphs_tell(pp_graphs *g, const pp_graph_run *runs, size_t count, pp_graphs_kernel *kernels,
                   size_t n, pp_error *err)
{
    int64_t until[UINT8_MAX + 1] = {0}; /* by thread: the end of its last run */
    if (mark_beside(g, runs, count, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++)
        kernels[i].layer = kernels[i].run = 0;
    for (size_t r = 0; r < count; r++) {
        uint32_t region = 0;
        if (runs[r].start < until[runs[r].thread])
            continue; /* it is around one that was looked at */
        until[runs[r].thread] = runs[r].end;
        const long found = gather(g, &runs[r], g->beside[r], kernels, n, &region, err);
        if (found < 0)
            return -1;
        if (found == 0)
            continue; /* of another GPU */
        const graph *of = find(g, runs[r].graph, region);
        g->told.runs++;
        if (!of || !pp_graph_match(g->launches + of->first, of->count, g->kernels, (size_t)found,
                                   g->layers))
            note(g, region, &runs[r], of != NULL);
        if (!of)
            continue;
        for (long i = 0; i < found; i++) {
            pp_graphs_kernel *kernel = &kernels[g->places[i]];
            kernel->layer = g->layers[i] == region ? 0 : g->layers[i];
            kernel->run = (uint32_t)r + 1;
        }
    }
    return 0;
}
