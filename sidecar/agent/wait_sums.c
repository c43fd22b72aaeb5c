#include "sidecar/agent/wait_sums.h"

#include "common/cleanup.h"
#include "common/json.h"
#include "sidecar/agent/sum_part.h"
#include "sidecar/agent/text.h"

#include <stdlib.h>
#include <string.h>
#include <uthash.h>

typedef struct key {
    uint32_t layer;
    uint32_t phase;
    uint32_t call;
    uint32_t site;
} key;

typedef struct row {
    key key;
    int64_t count, steps, ns;
    int64_t step; /* the latest that counts here */
    UT_hash_handle hh;
} row;

struct pp_wait_sums {
    row *rows;
    int64_t steps; /* since that was told */
    int64_t step;  /* a number of the one that is added */
    bool any;      /* waits were counted, now or before */
    int64_t untold;
};

pp_wait_sums *pp_wait_sums_new(void)
{
    return calloc(1, sizeof(pp_wait_sums));
}

void pp_wait_sums_free(pp_wait_sums *s)
{
    if (s)
        pp_wait_sums_clear(s);
    free(s);
}

void pp_wait_sums_clear(pp_wait_sums *s)
{
    row *r, *spare;
    HASH_ITER(hh, s->rows, r, spare)
    {
        HASH_DEL(s->rows, r);
        free(r);
    }
    s->steps = 0;
}

void pp_wait_sums_forget(pp_wait_sums *s)
{
    pp_wait_sums_clear(s);
    s->any = false;
}

int64_t pp_wait_sums_untold(const pp_wait_sums *s)
{
    return s->untold;
}

bool pp_wait_sums_due(const pp_wait_sums *s)
{
    return s->any && s->steps > 0;
}

/* ---- sums ---- */

static int64_t at_most(int64_t value, int64_t most)
{
    return value < most ? value : most;
}

static row *find(pp_wait_sums *s, const key *k, unsigned most)
{
    row *r = NULL;
    HASH_FIND(hh, s->rows, k, sizeof *k, r);
    if (r || HASH_COUNT(s->rows) >= most)
        return r;
    r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->key = *k;
    r->step = -1;
    HASH_ADD(hh, s->rows, key, sizeof r->key, r);
    return r;
}

static void add(pp_wait_sums *s, const pp_wait *w)
{
    key k = {.layer = w->layer, .phase = w->phase, .call = w->call, .site = w->site};
    row *r = find(s, &k, PP_WAIT_SUMS_MAX);
    k.site = 0;
    if (!r)
        r = find(s, &k, 2 * PP_WAIT_SUMS_MAX);
    if (!r) {
        s->untold += w->count;
        return;
    }
    r->count += w->count;
    r->ns = at_most(r->ns, PP_WIRE_MAX_DURATION) + at_most(w->ns, PP_WIRE_MAX_DURATION);
    r->steps += r->step != s->step;
    r->step = s->step;
    s->any = true;
}

void pp_wait_sums_add(pp_wait_sums *s, const pp_step *step)
{
    s->step++;
    s->steps++;
    for (size_t i = 0; i < step->wait_count; i++)
        add(s, &step->waits[i]);
}

/* ---- for the wire ---- */

static int compare_rows(const row *a, const row *b)
{
    const uint32_t x[] = {a->key.layer, a->key.phase, a->key.call, a->key.site};
    const uint32_t y[] = {b->key.layer, b->key.phase, b->key.call, b->key.site};
    return pp_sum_compare(x, y, sizeof x / sizeof *x);
}

/* Places on the wire: by number here, one more than that; 0: none yet. */
typedef struct places {
    size_t calls[PP_WAIT_CALLS];
    struct {
        size_t file;
        int64_t line;
    } sites[PP_RING_SITES + 1];
} places;

static int place_call(uint32_t call, places *p, pp_wire_waits *ret, pp_error *err)
{
    if (p->calls[call] > 0)
        return 0;
    if (pp_strings_add(&ret->calls, pp_wait_name((uint8_t)call), err) < 0)
        return -1;
    p->calls[call] = ret->calls.count;
    return 0;
}

/* What the program has written there is made fit for the wire. */
static int place_site(uint32_t number, places *p, pp_wait_site_fn site, void *user,
                      pp_wire_waits *ret, pp_error *err)
{
    pp_ring_site at = {0};
    if (p->sites[number].file > 0)
        return 0;
    if (number > 0 && site(user, number, &at, err) < 0)
        return -1;
    pp_text_clean(at.file);
    const size_t place = pp_strings_index(&ret->files, at.file);
    if (place == ret->files.count && pp_strings_add(&ret->files, at.file, err) < 0)
        return -1;
    p->sites[number].file = place + 1;
    p->sites[number].line = at.line <= INT32_MAX ? at.line : 0;
    return 0;
}

/* Bytes of text that a row takes at most, with the file that it is the first to name. */
static size_t text_of(const row *r, const places *p)
{
    enum { ROW = 120, FILE_TEXT = 2 * PP_RING_FILE }; /* a quote takes two */
    return p->sites[r->key.site].file == 0 ? ROW + FILE_TEXT : ROW;
}

static int copy_row(const row *r, places *p, pp_wait_site_fn site, void *user, pp_wire_waits *ret,
                    pp_error *err)
{
    if (place_call(r->key.call, p, ret, err) < 0 ||
        place_site(r->key.site, p, site, user, ret, err) < 0)
        return -1;
    const int64_t count = at_most(r->count, PP_WIRE_MAX_COUNT);
    ret->rows[ret->count++] = (pp_wire_wait){
        .layer = r->key.layer,
        .phase = (pp_wire_phase)r->key.phase,
        .call = (int64_t)p->calls[r->key.call] - 1,
        .file = (int64_t)p->sites[r->key.site].file - 1,
        .line = p->sites[r->key.site].line,
        .count = count,
        .steps = at_most(r->steps, count),
        .duration = at_most(r->ns, PP_WIRE_MAX_DURATION),
    };
    return 0;
}

int pp_wait_sums_copy(pp_wait_sums *s, size_t room, size_t *at, pp_wait_site_fn site, void *user,
                      pp_wire_waits *ret, pp_error *err)
{
    pp_sum_part part = {.room = room, .from = *at, .rows = PP_WIRE_MAX_WAITS};
    const bool first = *at == 0;
    *ret = (pp_wire_waits){0};
    PP_CLEANUP_FREE places *p = calloc(1, sizeof *p);
    ret->rows = calloc(HASH_COUNT(s->rows) + 1, sizeof *ret->rows);
    if (!p || !ret->rows)
        return pp_error_nomem(err);
    ret->steps = first && s->any ? s->steps : 0;
    HASH_SRT(hh, s->rows, compare_rows);
    for (const row *r = s->rows; r && !part.full; r = r->hh.next) {
        if (pp_sum_part_takes(&part, true, r->key.layer, text_of(r, p)) &&
            copy_row(r, p, site, user, ret, err) < 0)
            return -1;
    }
    *at = pp_sum_part_end(&part);
    return 0;
}
