#include "sidecar/agent/kernel_sums.h"

#include "common/array.h"
#include "common/cleanup.h"
#include "sidecar/agent/sum_part.h"
#include "sidecar/agent/text.h"

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

/* Of libsupc++: tells the readable form of a mangled name in parts; 0: it is none, or of more than
 * 1,024 bytes. __cxa_demangle does the same without a bound: a short name may stand for gigabytes.
 */
extern int __gcclibcxx_demangle_callback(const char *mangled,
                                         void (*take)(const char *part, size_t n, void *user),
                                         void *user);

enum { READABLE_MAX = 64 << 10 };

typedef struct key {
    uint32_t layer;
    uint32_t phase;
    uint32_t name;
} key;

typedef struct row {
    key key;
    int64_t count, ns;           /* of steps that count */
    int64_t next_count, next_ns; /* of the one that comes next */
    struct row *next;            /* that has kernels of it, too */
    UT_hash_handle hh;
} row;

struct pp_kernel_sums {
    char **names; /* by their numbers less 1 */
    size_t name_count, name_capacity;
    char *part; /* of a name that is not whole yet */
    size_t part_size, part_capacity;
    uint32_t named;
    row *rows;
    row *touched; /* those with kernels of the step that comes next */
    int64_t steps;
    bool over; /* there were too many rows, or no memory: what is here is not all */
};

pp_kernel_sums *pp_kernel_sums_new(void)
{
    return calloc(1, sizeof(pp_kernel_sums));
}

void pp_kernel_sums_free(pp_kernel_sums *s)
{
    if (!s)
        return;
    pp_kernel_sums_step(s, false);
    pp_kernel_sums_clear(s);
    for (size_t i = 0; i < s->name_count; i++)
        free(s->names[i]);
    free(s->names);
    free(s->part);
    free(s);
}

void pp_kernel_sums_clear(pp_kernel_sums *s)
{
    row *r, *spare;
    HASH_ITER(hh, s->rows, r, spare)
    {
        r->count = r->ns = 0;
        if (r->next_count > 0) /* the step that comes next is not told */
            continue;
        HASH_DEL(s->rows, r);
        free(r);
    }
    s->steps = 0;
    s->over = false;
}

/* ---- names ---- */

/* Cuts one that is too long in its middle: its begin says what it is, its end tells it apart. */
static void shorten(char *text)
{
    enum { HEAD = 600, TAIL = PP_WIRE_MAX_NAME - HEAD - 3 };
    const size_t n = strlen(text);
    if (n <= PP_WIRE_MAX_NAME)
        return;
    memcpy(text + HEAD, "...", 3);
    memmove(text + HEAD + 3, text + n - TAIL, TAIL + 1);
}

typedef struct readable {
    jmp_buf full;
    size_t n;
    char text[READABLE_MAX + 1];
} readable;

static void take_part(const char *part, size_t n, void *user)
{
    readable *r = user;
    if (n > READABLE_MAX - r->n)
        longjmp(r->full, 1);
    memcpy(r->text + r->n, part, n);
    r->n += n;
}

/* NULL: it cannot be told, or memory is out. */
static char *demangle(const char *mangled)
{
    readable *r = calloc(1, sizeof *r);
    char *text = NULL;
    if (!r)
        return NULL;
    if (setjmp(r->full) == 0 && __gcclibcxx_demangle_callback(mangled, take_part, r) == 0)
        text = strdup(r->text);
    free(r);
    return text;
}

static char *name_of(const char *mangled)
{
    char *text = strncmp(mangled, "_Z", 2) == 0 ? demangle(mangled) : NULL;
    if (!text)
        text = strdup(mangled);
    if (text) {
        shorten(text);
        pp_text_clean(text);
    }
    return text;
}

static int add_name(pp_kernel_sums *s, pp_error *err)
{
    if (pp_array_reserve(&s->names, &s->name_capacity, s->name_count + 1, sizeof *s->names, err) <
        0)
        return -1;
    s->names[s->name_count] = name_of(s->part);
    if (!s->names[s->name_count])
        return pp_error_nomem(err);
    s->name_count++;
    s->part_size = 0;
    return 0;
}

uint32_t pp_kernel_sums_named(const pp_kernel_sums *s)
{
    return s->named;
}

int pp_kernel_sums_name(pp_kernel_sums *s, const char *bytes, size_t n, pp_error *err)
{
    for (size_t i = 0; i < n; i++, s->named++) {
        if (pp_array_reserve(&s->part, &s->part_capacity, s->part_size + 1, 1, err) < 0)
            return -1;
        s->part[s->part_size++] = bytes[i];
        if (!bytes[i] && s->name_count < PP_RING_KERNEL_NAMES && add_name(s, err) < 0)
            return -1;
    }
    return 0;
}

/* ---- sums ---- */

static row *row_of(pp_kernel_sums *s, const key *k)
{
    row *r = NULL;
    HASH_FIND(hh, s->rows, k, sizeof *k, r);
    if (r)
        return r;
    r = HASH_COUNT(s->rows) < PP_KERNEL_SUMS_MAX ? calloc(1, sizeof *r) : NULL;
    if (!r) {
        s->over = true;
        return NULL;
    }
    r->key = *k;
    HASH_ADD(hh, s->rows, key, sizeof r->key, r);
    return r;
}

void pp_kernel_sums_add(pp_kernel_sums *s, const pp_kernels_placed *kernel)
{
    const key k = {.layer = kernel->layer,
                   .phase = kernel->phase,
                   .name = kernel->name <= s->name_count ? kernel->name : 0};
    row *r = s->over ? NULL : row_of(s, &k);
    if (!r)
        return;
    if (r->next_count == 0) {
        r->next = s->touched;
        s->touched = r;
    }
    r->next_count++;
    r->next_ns = pp_sum_capped(r->next_ns, kernel->end - kernel->start, PP_WIRE_MAX_DURATION);
}

void pp_kernel_sums_step(pp_kernel_sums *s, bool counts)
{
    for (row *r = s->touched; r; r = r->next) {
        r->count += counts ? r->next_count : 0;
        r->ns = pp_sum_capped(r->ns, counts ? r->next_ns : 0, PP_WIRE_MAX_DURATION);
        r->next_count = r->next_ns = 0;
    }
    s->steps += counts;
    s->touched = NULL;
}

bool pp_kernel_sums_over(const pp_kernel_sums *s)
{
    return s->over;
}

int64_t pp_kernel_sums_steps(const pp_kernel_sums *s)
{
    return s->steps;
}

/* ---- for the wire ---- */

static int compare_rows(const row *a, const row *b)
{
    const uint32_t x[] = {a->key.layer, a->key.phase, a->key.name};
    const uint32_t y[] = {b->key.layer, b->key.phase, b->key.name};
    return pp_sum_compare(x, y, sizeof x / sizeof *x);
}

/* The place of a name among those that are told; adds it. `places`: by number, one more than that.
 */
static int place_of(const pp_kernel_sums *s, uint32_t number, size_t *places, pp_wire_kernels *ret,
                    int64_t *ret_place, pp_error *err)
{
    if (places[number] == 0) {
        if (pp_strings_add(&ret->names, number ? s->names[number - 1] : "", err) < 0)
            return -1;
        places[number] = ret->names.count;
    }
    *ret_place = (int64_t)places[number] - 1;
    return 0;
}

/* Bytes of text that a row takes at most, with the name that it is the first to have. */
static size_t text_of(const pp_kernel_sums *s, const row *r, const size_t *places)
{
    enum { ROW = 80 };
    const bool named = r->key.name == 0 || places[r->key.name] > 0;
    return named ? ROW : ROW + 2 * strlen(s->names[r->key.name - 1]); /* a quote takes two */
}

static int copy_rows(pp_kernel_sums *s, size_t *places, size_t room, size_t *at,
                     pp_wire_kernels *ret, pp_error *err)
{
    pp_sum_part part = {.room = room, .from = *at, .rows = PP_WIRE_MAX_KERNELS};
    HASH_SRT(hh, s->rows, compare_rows);
    for (const row *r = s->rows; r && !part.full; r = r->hh.next) {
        if (!pp_sum_part_takes(&part, r->count > 0, r->key.layer, text_of(s, r, places)))
            continue;
        pp_wire_kernel *to = &ret->rows[ret->count];
        *to = (pp_wire_kernel){.layer = r->key.layer,
                               .phase = (pp_wire_phase)r->key.phase,
                               .count = r->count,
                               .duration =
                                   r->ns < PP_WIRE_MAX_DURATION ? r->ns : PP_WIRE_MAX_DURATION};
        if (place_of(s, r->key.name, places, ret, &to->name, err) < 0)
            return -1;
        ret->count++;
    }
    *at = pp_sum_part_end(&part);
    return 0;
}

int pp_kernel_sums_copy(pp_kernel_sums *s, size_t room, size_t *at, pp_wire_kernels *ret,
                        pp_error *err)
{
    const bool first = *at == 0;
    *ret = (pp_wire_kernels){0};
    if (s->over || s->steps == 0 || !s->rows) {
        *at = SIZE_MAX;
        return 0;
    }
    PP_CLEANUP_FREE size_t *places = calloc(s->name_count + 1, sizeof *places);
    ret->rows = calloc(HASH_COUNT(s->rows), sizeof *ret->rows);
    if (!places || !ret->rows)
        return pp_error_nomem(err);
    int rc = copy_rows(s, places, room, at, ret, err);
    ret->steps = first && ret->count ? s->steps : 0;
    return rc;
}
