#include "sidecar/agent/memory_sums.h"

#include "common/cleanup.h"
#include "sidecar/agent/sum_part.h"

#include <stdlib.h>
#include <string.h>
#include <uthash.h>

enum { LOOKS = 256 };

typedef struct key {
    uint32_t layer;
    uint32_t phase;
} key;

typedef struct row {
    key key;
    int64_t peak, left;
    UT_hash_handle hh;
} row;

struct pp_memory_sums {
    row *rows;
    int64_t steps; /* since that was told */
};

pp_memory_sums *pp_memory_sums_new(void)
{
    return calloc(1, sizeof(pp_memory_sums));
}

void pp_memory_sums_free(pp_memory_sums *s)
{
    if (!s)
        return;
    pp_memory_sums_clear(s);
    free(s);
}

void pp_memory_sums_clear(pp_memory_sums *s)
{
    row *r, *spare;
    HASH_ITER(hh, s->rows, r, spare)
    {
        HASH_DEL(s->rows, r);
        free(r);
    }
    s->steps = 0;
}

bool pp_memory_sums_due(const pp_memory_sums *s)
{
    return s->steps > 0;
}

/* ---- whose a moment is ---- */

/* Of pieces that begin together the longest is first. */
static int compare_begins(const void *a, const void *b)
{
    const pp_piece *x = a, *y = b;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    return (x->end < y->end) - (x->end > y->end);
}

/* Pieces of one thread follow each other: of those before a moment few are looked at. */
static const pp_piece *open_at(const pp_piece *pieces, size_t begun, int64_t time)
{
    for (size_t i = begun; i > 0 && begun - i < LOOKS; i--)
        if (pieces[i - 1].end > time)
            return &pieces[i - 1];
    return NULL;
}

/* What is freed just behind the end of a backward's last node was saved for it. */
static const pp_piece *ended_at(const pp_piece *pieces, size_t begun, int64_t time)
{
    for (size_t i = begun; i > 0 && begun - i < LOOKS; i--)
        if (pieces[i - 1].end == time && pieces[i - 1].phase == PP_MARK_BACKWARD)
            return &pieces[i - 1];
    return NULL;
}

/* ---- sums ---- */

static row *find(pp_memory_sums *s, const key *k, unsigned most, pp_error *err)
{
    row *r = NULL;
    HASH_FIND(hh, s->rows, k, sizeof *k, r);
    if (r)
        return r;
    if (HASH_COUNT(s->rows) >= most) {
        const key rest = {.phase = PP_MARK_OTHER};
        return find(s, &rest, most + 1, err);
    }
    r = calloc(1, sizeof *r);
    if (!r) {
        (void)pp_error_nomem(err);
        return NULL;
    }
    r->key = *k;
    HASH_ADD(hh, s->rows, key, sizeof r->key, r);
    return r;
}

static int add(pp_memory_sums *s, const pp_piece *in, const pp_level *from, const pp_level *to,
               pp_error *err)
{
    const key k = {.layer = in ? in->layer : 0, .phase = in ? in->phase : PP_MARK_OTHER};
    row *r = find(s, &k, PP_MEMORY_SUMS_MAX - 1, err);
    if (!r)
        return -1;
    r->peak = from->peak > r->peak ? from->peak : r->peak;
    const int64_t left = r->left + to->bytes - from->bytes;
    r->left = llabs(left) <= PP_WIRE_MAX_COUNT ? left : r->left;
    return 0;
}

int pp_memory_sums_add(pp_memory_sums *s, const pp_step *step, pp_error *err)
{
    if (step->level_count < 2)
        return 0;
    PP_CLEANUP_FREE pp_piece *pieces = calloc(step->count + 1, sizeof *pieces);
    if (!pieces)
        return pp_error_nomem(err);
    if (step->count > 0)
        memcpy(pieces, step->pieces, step->count * sizeof *pieces);
    qsort(pieces, step->count, sizeof *pieces, compare_begins);
    size_t begun = 0;
    for (size_t i = 0; i + 1 < step->level_count; i++) {
        const pp_level *from = &step->levels[i], *to = from + 1;
        while (begun < step->count && pieces[begun].start <= from->time)
            begun++;
        const pp_piece *in = from->time == to->time ? ended_at(pieces, begun, from->time) : NULL;
        if (add(s, in ? in : open_at(pieces, begun, from->time), from, to, err) < 0)
            return -1;
    }
    s->steps++;
    return 0;
}

/* ---- for the wire ---- */

static int compare_rows(const row *a, const row *b)
{
    const uint32_t x[] = {a->key.layer, a->key.phase}, y[] = {b->key.layer, b->key.phase};
    return pp_sum_compare(x, y, sizeof x / sizeof *x);
}

int pp_memory_sums_copy(pp_memory_sums *s, size_t room, size_t *at, pp_wire_memory *ret,
                        pp_error *err)
{
    enum { ROW = 64 };
    pp_sum_part part = {.room = room, .from = *at, .rows = PP_WIRE_MAX_MEMORY};
    *ret = (pp_wire_memory){.steps = *at == 0 ? s->steps : 0};
    ret->rows = calloc(HASH_COUNT(s->rows) + 1, sizeof *ret->rows);
    if (!ret->rows)
        return pp_error_nomem(err);
    HASH_SRT(hh, s->rows, compare_rows);
    for (const row *r = s->rows; r && !part.full; r = r->hh.next) {
        if (!pp_sum_part_takes(&part, true, r->key.layer, ROW))
            continue;
        ret->rows[ret->count++] = (pp_wire_memory_row){.layer = r->key.layer,
                                                       .phase = (pp_wire_phase)r->key.phase,
                                                       .peak = r->peak,
                                                       .left = r->left};
    }
    *at = pp_sum_part_end(&part);
    return 0;
}
