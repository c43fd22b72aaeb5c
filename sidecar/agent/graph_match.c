#include "sidecar/agent/graph_match.h"

#include <string.h>

static bool has_any(const char *name, const char *const *words)
{
    bool any = false;
    for (; *words && !any; words++)
        any = strstr(name, *words) != NULL;
    return any;
}

/* In this order: kernels of attention are made of products, and say so too. */
pp_kernel_kind pp_kernel_kind_of(const char *name)
{
    static const char *const attention[] = {"flash",    "fmha",       "sdpa", "attention",
                                            "dot_do_o", "convert_dq", NULL}; /* cuDNN's backward */
    static const char *const parts[] = {"splitKreduce", NULL};
    static const char *const product[] = {"gemm", "nvjet", "gemv", "cutlass", "xmma", NULL};
    static const char *const sum[] = {"reduce_kernel", NULL};
    static const char *const copy[] = {"multi_tensor_apply", "copy_kernel", "FillFunctor", NULL};
    if (strncmp(name, "triton_", sizeof "triton_" - 1) == 0)
        return PP_KIND_WRITTEN;
    if (has_any(name, attention))
        return PP_KIND_ATTENTION;
    if (has_any(name, parts))
        return PP_KIND_PARTS;
    if (has_any(name, product))
        return PP_KIND_PRODUCT;
    if (has_any(name, sum))
        return PP_KIND_SUM;
    return has_any(name, copy) ? PP_KIND_COPY : PP_KIND_OTHER;
}

/* Calls of libraries between two written kernels, and the kernels that ran there. */
typedef struct gap {
    const pp_ring_launch *calls;
    size_t call_count;
    const pp_graph_kernel *kernels;
    size_t n;
    uint32_t *layers;
    bool first; /* before all written ones: inputs may be copied there, and seeds stored */
} gap;

static bool is_written(const pp_graph_kernel *kernel)
{
    return kernel->kind == PP_KIND_WRITTEN;
}

/* Whether it may be none of the calls'. */
static bool is_stray(const gap *g, size_t i)
{
    return g->first && g->kernels[i].kind == PP_KIND_COPY;
}

/* The layer of all calls; 0: they have several. */
static uint32_t common_layer(const gap *g)
{
    for (size_t i = 1; i < g->call_count; i++)
        if (g->calls[i].layer != g->calls[0].layer)
            return 0;
    return g->calls[0].layer;
}

/* Where one ends and the next begins is not known, nor wanted. */
static bool is_one_attention(const pp_ring_launch *pair)
{
    return pair[0].op == PP_OP_ATTENTION && pair[1].op == PP_OP_ATTENTION &&
           pair[0].layer == pair[1].layer;
}

/* The call that launched this kernel, where the one before it was launched by `call`, SIZE_MAX: by
 * none; call_count: by none that fits, count + 1: it does not say. */
static size_t call_of(const gap *g, size_t call, pp_kernel_kind kind)
{
    const size_t next = call == SIZE_MAX ? 0 : call + 1;
    const uint32_t now = call == SIZE_MAX ? PP_OP_UNKNOWN : g->calls[call].op;
    const uint32_t then = next < g->call_count ? g->calls[next].op : PP_OP_UNKNOWN;
    switch (kind) {
    case PP_KIND_PRODUCT:
        return then == PP_OP_PRODUCT ? next : g->call_count;
    case PP_KIND_SUM: /* such calls come first; what other calls launch may be named so too */
        return then == PP_OP_SUM ? next : g->call_count + 1;
    case PP_KIND_PARTS:
        return now == PP_OP_PRODUCT ? call : g->call_count;
    case PP_KIND_ATTENTION:
        if (now == PP_OP_ATTENTION && then == PP_OP_ATTENTION)
            return g->call_count; /* of two layers: where one ends is not known */
        return now == PP_OP_ATTENTION ? call : then == PP_OP_ATTENTION ? next : g->call_count;
    default:
        return g->call_count + 1;
    }
}

/* By what names say: each product has a kernel, and attention kernels of its own. What says nothing
 * is of the layer that has what is before it and behind it. False: they do not fit. */
static bool tell_by_kind(const gap *g)
{
    size_t call = SIZE_MAX;
    size_t told = SIZE_MAX; /* the kernel that was told last */
    for (size_t i = 0; i < g->n; i++) {
        const size_t found = call_of(g, call, g->kernels[i].kind);
        if (found == g->call_count)
            return false;
        if (found > g->call_count)
            continue;
        g->layers[i] = g->calls[found].layer;
        for (size_t j = told + 1; told != SIZE_MAX && j < i; j++)
            if (g->layers[told] == g->layers[i])
                g->layers[j] = g->layers[i];
        call = found;
        told = i;
        while (call + 1 < g->call_count && is_one_attention(&g->calls[call]))
            call++;
    }
    return call != SIZE_MAX && call + 1 == g->call_count;
}

/* Each of as many calls launched one. False: there are more or less kernels. */
static bool tell_by_number(const gap *g)
{
    size_t n = 0;
    bool parts = false;
    for (size_t i = 0; i < g->n; i++) {
        n += !is_stray(g, i);
        parts = parts || g->kernels[i].kind == PP_KIND_PARTS; /* one call launched two, then */
    }
    if (n != g->call_count || parts)
        return false;
    for (size_t i = 0, call = 0; i < g->n; i++)
        if (!is_stray(g, i))
            g->layers[i] = g->calls[call++].layer;
    return true;
}

static void tell_gap(const gap *g)
{
    bool launch = true, named = true;
    if (g->call_count == 0 || g->n == 0)
        return;
    const uint32_t layer = common_layer(g);
    for (size_t i = 0; i < g->n && layer; i++)
        g->layers[i] = is_stray(g, i) ? 0 : layer;
    if (layer)
        return;
    for (size_t i = 0; i < g->call_count; i++) {
        launch = launch && g->calls[i].op != PP_OP_UNKNOWN && g->calls[i].op < PP_OPS;
        named = named && (g->calls[i].op == PP_OP_PRODUCT || g->calls[i].op == PP_OP_ATTENTION ||
                          g->calls[i].op == PP_OP_SUM);
    }
    if (launch && tell_by_number(g))
        return;
    if (!named || !tell_by_kind(g))
        memset(g->layers, 0, g->n * sizeof *g->layers);
}

/* Whether the written kernels are the graph's, in order. */
static bool is_run(const pp_ring_launch *launches, size_t count, const pp_graph_kernel *kernels,
                   size_t n)
{
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        if (!is_written(&kernels[i]))
            continue;
        while (at < count && launches[at].name == 0)
            at++;
        if (at == count || launches[at].name != kernels[i].name)
            return false;
        at++;
    }
    while (at < count && launches[at].name == 0)
        at++;
    return at == count;
}

bool pp_graph_match(const pp_ring_launch *launches, size_t count, const pp_graph_kernel *kernels,
                    size_t n, uint32_t *ret_layers)
{
    size_t at = 0, i = 0;
    if (n > 0)
        memset(ret_layers, 0, n * sizeof *ret_layers);
    if (!is_run(launches, count, kernels, n))
        return false;
    for (bool first = true; at < count || i < n; first = false) {
        gap g = {.calls = launches + at, .kernels = kernels + i, .layers = ret_layers + i};
        g.first = first;
        for (; at < count && launches[at].name == 0; at++)
            g.call_count++;
        for (; i < n && !is_written(&kernels[i]); i++)
            g.n++;
        tell_gap(&g);
        if (at < count && i < n)
            ret_layers[i++] = launches[at++].layer;
    }
    return true;
}
