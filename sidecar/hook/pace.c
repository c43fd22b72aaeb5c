/*
 * How long steps take, marked and plain: what the hook really costs, whatever it is made of. The
 * host's time of single steps says little where a training waits for its GPU only now and then, so
 * steps are taken in blocks.
 */
#include "hook.h"

#include <string.h>

enum { BLOCK = 16, BLOCKS = 9, KNOWN = 3, SMOOTH = 32 };

enum { NEITHER = -1, PLAIN, MARKED };

typedef struct pace {
    int64_t blocks[BLOCKS]; /* ns a step, the latest ones; a circle */
    unsigned count;
} pace;

static pace paces[2];
static struct {
    int kind;
    int steps;
    int64_t since;
} block = {.kind = NEITHER};

static void sort(int64_t *v, int n)
{
    for (int i = 1; i < n; i++)
        for (int j = i; j > 0 && v[j] < v[j - 1]; j--) {
            int64_t t = v[j];
            v[j] = v[j - 1];
            v[j - 1] = t;
        }
}

/* The median of the blocks, and 1.5 times its standard error by their median deviation. */
static int64_t median(const pace *p, int64_t *ret_spread)
{
    int n = p->count < BLOCKS ? (int)p->count : BLOCKS;
    int64_t v[BLOCKS];
    memcpy(v, p->blocks, sizeof v);
    sort(v, n);
    int64_t middle = v[n / 2];
    for (int i = 0; i < n; i++)
        v[i] = v[i] > middle ? v[i] - middle : middle - v[i];
    sort(v, n);
    static const double root[BLOCKS + 1] = {1, 1, 1.414, 1.732, 2, 2.236, 2.449, 2.646, 2.828, 3};
    *ret_spread += (int64_t)(1.5 * 1.2533 * 1.4826 * (double)v[n / 2] / root[n]);
    return middle;
}

/* What a marked step costs more than a plain one; false: not known yet. */
static bool compare(int64_t *ret_extra, int64_t *ret_spread)
{
    if (paces[0].count < KNOWN || paces[1].count < KNOWN)
        return false;
    *ret_spread = 0;
    int64_t plain = median(&paces[0], ret_spread);
    *ret_extra = median(&paces[1], ret_spread) - plain;
    return true;
}

/* A marked step's cost: as summed up by its parts, within what the comparison allows. */
static int64_t settle_cost(int64_t own)
{
    static int64_t extra, spread;
    static bool known;
    static unsigned seen;
    if (seen != paces[0].count + paces[1].count)
        known = compare(&extra, &spread);
    seen = paces[0].count + paces[1].count;
    static int64_t records; /* of a step on average: they come in bursts */
    records += (pp_kernels_cost() - records) / SMOOTH;
    own += records;
    if (!known)
        return own;
    int64_t cost = own < extra - spread   ? extra - spread
                   : own > extra + spread ? extra + spread
                                          : own;
    return cost > 0 ? cost : 0;
}

static int kind_of(pp_state state)
{
    if (state == MARKING)
        return MARKED;
    return state == COUNTING && !pp_kernels_active() ? PLAIN : NEITHER;
}

void pp_pace_step(pp_state state)
{
    int kind = kind_of(state);
    int64_t own = pp_ring_cost_hold(kind == MARKED);
    int64_t now = pp_now();
    pp_ring_cost_add(kind == MARKED && block.kind == MARKED ? settle_cost(own)
                                                            : own + pp_kernels_cost());
    if (kind != block.kind || kind == NEITHER) {
        block.kind = kind;
        block.steps = 0;
        block.since = now;
    } else if (++block.steps == BLOCK) {
        pace *p = &paces[kind];
        p->blocks[p->count++ % BLOCKS] = (now - block.since) / BLOCK;
        block.steps = 0;
        block.since = now;
    }
}
