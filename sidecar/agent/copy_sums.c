#include "sidecar/agent/copy_sums.h"

#include "sidecar/agent/sum_part.h"

#include <stdlib.h>
#include <string.h>
#include <uthash.h>

_Static_assert((int)PP_COPY_OTHER == (int)PP_WIRE_COPY_OTHER &&
                   (int)PP_COPY_FILL == (int)PP_WIRE_FILL && (int)PP_COPY_D2H == (int)PP_WIRE_D2H,
               "the ring's numbers are the wire's");
_Static_assert((int)PP_COPY_PINNED == (int)PP_WIRE_PINNED &&
                   (int)PP_COPY_PAGEABLE == (int)PP_WIRE_PAGEABLE,
               "the ring's numbers are the wire's");

enum { FOLDED = PP_COPY_TYPES * PP_COPY_MEMORIES }; /* rows of no layer, beside the others */

typedef struct key {
    uint32_t layer;
    uint32_t phase;
    uint32_t type;
    uint32_t memory;
} key;

typedef struct sum {
    int64_t count, bytes, ns;
} sum;

typedef struct row {
    key key;
    sum all;          /* of steps that count */
    sum next;         /* of the one that comes next */
    struct row *then; /* that has some of it, too */
    UT_hash_handle hh;
} row;

struct pp_copy_sums {
    row *rows;
    row *touched;  /* those with copies of the step that comes next */
    int64_t steps; /* since that was told */
    bool any;      /* copies were counted, now or before */
};

pp_copy_sums *pp_copy_sums_new(void)
{
    return calloc(1, sizeof(pp_copy_sums));
}

void pp_copy_sums_free(pp_copy_sums *s)
{
    if (!s)
        return;
    pp_copy_sums_step(s, false);
    pp_copy_sums_clear(s);
    free(s);
}

void pp_copy_sums_clear(pp_copy_sums *s)
{
    row *r, *spare;
    HASH_ITER(hh, s->rows, r, spare)
    {
        r->all = (sum){0};
        if (r->next.count > 0) /* the step that comes next is not told */
            continue;
        HASH_DEL(s->rows, r);
        free(r);
    }
    s->steps = 0;
}

void pp_copy_sums_forget(pp_copy_sums *s)
{
    pp_copy_sums_clear(s);
    s->any = false;
}

bool pp_copy_sums_due(const pp_copy_sums *s)
{
    return s->any && s->steps > 0;
}

/* ---- sums ---- */

static row *find(pp_copy_sums *s, const key *k, unsigned most)
{
    row *r = NULL;
    HASH_FIND(hh, s->rows, k, sizeof *k, r);
    if (r || HASH_COUNT(s->rows) >= most)
        return r;
    r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->key = *k;
    HASH_ADD(hh, s->rows, key, sizeof r->key, r);
    return r;
}

static void add(sum *to, const sum *from)
{
    to->count = pp_sum_capped(to->count, from->count, PP_WIRE_MAX_COUNT);
    to->bytes = pp_sum_capped(to->bytes, from->bytes, PP_WIRE_MAX_COUNT);
    to->ns = pp_sum_capped(to->ns, from->ns, PP_WIRE_MAX_DURATION);
}

void pp_copy_sums_add(pp_copy_sums *s, const pp_kernels_placed *copy)
{
    key k = {.layer = copy->layer,
             .phase = copy->phase,
             .type = copy->type,
             /* what the user's process says of others means nothing */
             .memory = copy->type == PP_COPY_H2D || copy->type == PP_COPY_D2H ? copy->memory
                                                                              : PP_COPY_UNKNOWN};
    row *r = find(s, &k, PP_COPY_SUMS_MAX);
    k.layer = 0;
    k.phase = PP_MARK_OTHER;
    if (!r)
        r = find(s, &k, PP_COPY_SUMS_MAX + FOLDED);
    if (!r)
        return;
    if (r->next.count == 0) {
        r->then = s->touched;
        s->touched = r;
    }
    add(&r->next, &(sum){1, copy->bytes, copy->end - copy->start});
}

void pp_copy_sums_step(pp_copy_sums *s, bool counts)
{
    for (row *r = s->touched; r; r = r->then) {
        if (counts)
            add(&r->all, &r->next);
        r->next = (sum){0};
    }
    s->any = s->any || (counts && s->touched);
    s->steps += counts;
    s->touched = NULL;
}

/* ---- for the wire ---- */

static int compare_rows(const row *a, const row *b)
{
    const uint32_t x[] = {a->key.layer, a->key.phase, a->key.type, a->key.memory};
    const uint32_t y[] = {b->key.layer, b->key.phase, b->key.type, b->key.memory};
    return pp_sum_compare(x, y, sizeof x / sizeof *x);
}

int pp_copy_sums_copy(pp_copy_sums *s, size_t room, size_t *at, pp_wire_copies *ret, pp_error *err)
{
    enum { ROW = 100 };
    pp_sum_part part = {.room = room, .from = *at, .rows = PP_WIRE_MAX_COPIES};
    *ret = (pp_wire_copies){.steps = *at == 0 && s->any ? s->steps : 0};
    ret->rows = calloc(HASH_COUNT(s->rows) + 1, sizeof *ret->rows);
    if (!ret->rows)
        return pp_error_nomem(err);
    HASH_SRT(hh, s->rows, compare_rows);
    for (const row *r = s->rows; r && !part.full; r = r->hh.next) {
        if (!pp_sum_part_takes(&part, r->all.count > 0, r->key.layer, ROW))
            continue;
        ret->rows[ret->count++] = (pp_wire_copy){.layer = r->key.layer,
                                                 .phase = (pp_wire_phase)r->key.phase,
                                                 .type = r->key.type,
                                                 .memory = r->key.memory,
                                                 .count = r->all.count,
                                                 .bytes = r->all.bytes,
                                                 .duration = r->all.ns};
    }
    *at = pp_sum_part_end(&part);
    return 0;
}
