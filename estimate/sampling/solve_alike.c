/* Kernels that are alike, as a network's layers repeat them, and gaps between such. */
#include "estimate/sampling/solve_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Kernels of a name and shape are alike as long as the longest takes so many times the shortest's
 * time: of a network's layers they differ by 1 point then, by 3 and more without
 * (docs/sampling.md). */
#define LENGTHS 1.15
/* The same of gaps: what a fill takes of one is less the longer it is. */
#define GAP_LENGTHS 1.5
#define SHORT_GAP_NS 3500.0

enum {
    TOLD = 50, /* kernels that so many samples' worth fell on are told by these */
    /* Each row of the border takes a solution for all columns: so many columns' worth. */
    COLUMNS_MAX = 1 << 22,
    GAPS_LEAST = 3, /* gaps of a group */
};

bool pp_alike_is_gap(const pp_sampling_column *c)
{
    return c->key.gap && pp_sampling_copy_of(&c->key) == 0;
}

bool pp_alike_touch(const pp_sampling_key *a, const pp_sampling_key *b)
{
    return a->gap == b->gap && (!a->gap || pp_sampling_copy_of(a)) &&
           pp_sampling_copy_of(a) == pp_sampling_copy_of(b) && a->layer == b->layer &&
           a->phase == b->phase && a->kernel == b->kernel;
}

/* ---- kernels ---- */

typedef struct member {
    pp_alike_kernel *of;
} member;

static int compare_likes(const void *a, const void *b)
{
    const pp_alike_kernel *x = ((const member *)a)->of;
    const pp_alike_kernel *y = ((const member *)b)->of;
    if (x->like != y->like)
        return x->like < y->like ? -1 : 1;
    if (x->length != y->length)
        return x->length < y->length ? -1 : 1;
    return x->from < y->from ? -1 : x->from > y->from;
}

/* A group's kernels, in order; `time` and `told` are of all. */
typedef struct choice {
    member *first;
    size_t n;
    double time, told;
} choice;

static int compare_choices(const void *a, const void *b)
{
    const choice *x = a;
    const choice *y = b;
    if (x->time != y->time)
        return x->time > y->time ? -1 : 1;
    return x->first->of->from < y->first->of->from ? -1 : x->first->of->from > y->first->of->from;
}

static size_t split(member *likes, size_t n, choice *ret)
{
    size_t choices = 0;
    for (size_t i = 0, to; i < n; i = to) {
        choice c = {.first = &likes[i]};
        for (to = i; to < n && likes[to].of->like == likes[i].of->like &&
                     likes[to].of->length <= LENGTHS * likes[i].of->length;
             to++) {
            c.time += likes[to].of->time;
            c.told += likes[to].of->told;
        }
        c.n = to - i;
        if (c.n > 1 && c.told < TOLD * (double)c.n)
            ret[choices++] = c;
    }
    return choices;
}

static uint32_t find_part(const pp_alike_group *g, uint16_t part)
{
    uint32_t i = 0;
    while (i < g->n && g->parts[i] < part)
        i++;
    return i;
}

/* Kernels that are a little longer than others may have a part more. */
static void list_parts(pp_alike_group *g, const choice *of, const pp_sampling_whole *w)
{
    for (size_t i = 0; i < of->n; i++)
        for (uint32_t k = of->first[i].of->from; k < of->first[i].of->to; k++) {
            const uint16_t part = w->columns[w->by_key[k]].key.part;
            const uint32_t at = find_part(g, part);
            if (at < g->n && g->parts[at] == part)
                continue;
            memmove(g->parts + at + 1, g->parts + at, (g->n - at) * sizeof *g->parts);
            g->parts[at] = part;
            g->n++;
        }
}

/* As many groups as there is room for, those that take most time first. */
static void choose(pp_alike *a, choice *choices, size_t n, const pp_sampling_whole *w)
{
    qsort(choices, n, sizeof *choices, compare_choices);
    for (size_t i = 0; i < n; i++) {
        pp_alike_group *g = &a->groups[a->n_groups];
        g->row = (uint32_t)(w->n + a->rows);
        list_parts(g, &choices[i], w);
        if ((a->rows + g->n) * w->n > COLUMNS_MAX)
            return;
        a->rows += g->n;
        a->n_groups++;
        for (size_t k = 0; k < choices[i].n; k++)
            choices[i].first[k].of->group = g;
    }
}

static int group_kernels(pp_alike *a, const pp_sampling_whole *w, pp_error *err)
{
    member *likes = calloc(a->n + 1, sizeof *likes);
    choice *choices = calloc(a->n / 2 + 1, sizeof *choices);
    a->groups = calloc(a->n / 2 + 1, sizeof *a->groups);
    const bool whole = likes && choices && a->groups;
    size_t alike = 0;
    for (size_t i = 0; whole && i < a->n; i++)
        if (a->kernels[i].like && a->kernels[i].to - a->kernels[i].from <= PP_ALIKE_PARTS_MAX)
            likes[alike++].of = &a->kernels[i];
    if (whole) {
        qsort(likes, alike, sizeof *likes, compare_likes);
        choose(a, choices, split(likes, alike, choices), w);
    }
    free(likes);
    free(choices);
    return whole ? 0 : pp_error_nomem(err);
}

static void list_kernels(pp_alike *a, const pp_sampling_whole *w)
{
    for (uint32_t i = 0; i < w->n; i++) {
        const pp_sampling_column *c = &w->columns[w->by_key[i]];
        if (c->key.gap)
            continue;
        if (a->n == 0 ||
            !pp_alike_touch(&w->columns[w->by_key[a->kernels[a->n - 1].from]].key, &c->key))
            a->kernels[a->n++] = (pp_alike_kernel){.from = i, .like = c->like};
        pp_alike_kernel *k = &a->kernels[a->n - 1];
        k->to = i + 1;
        k->time += c->time;
        k->told += c->share;
        k->count = c->count > k->count ? c->count : k->count;
        k->length = k->time / fmax((double)k->count, 1);
        k->like = k->like == c->like ? k->like : 0;
    }
}

/* ---- gaps ---- */

/* A gap: what the kernels before and behind it are like. */
typedef struct between {
    uint64_t before, behind;
    double length; /* ns, mean */
    uint32_t column;
    uint16_t part;
} between;

static int compare_between(const void *a, const void *b)
{
    const between *x = a;
    const between *y = b;
    if (x->before != y->before)
        return x->before < y->before ? -1 : 1;
    if (x->behind != y->behind)
        return x->behind < y->behind ? -1 : 1;
    if (x->part != y->part)
        return x->part < y->part ? -1 : 1;
    if (x->length != y->length)
        return x->length < y->length ? -1 : 1;
    return x->column < y->column ? -1 : x->column > y->column;
}

bool pp_alike_is_long_gap(const pp_sampling_column *c)
{
    return pp_alike_is_gap(c) && c->count > 0 && c->time >= SHORT_GAP_NS * (double)c->count;
}

/* Columns are in order of their places in a step: a gap's kernels are those of the columns around
 * it that are none. */
static size_t list_gaps(const pp_sampling_whole *w, between *ret)
{
    size_t n = 0;
    uint64_t before = 0;
    for (uint32_t i = 0; i < w->n; i++) {
        const pp_sampling_column *c = &w->columns[i];
        if (!c->key.gap)
            before = c->like;
        else if (pp_alike_is_long_gap(c) && before)
            ret[n++] = (between){.before = before,
                                 .length = c->time / (double)c->count,
                                 .column = i,
                                 .part = c->key.part};
    }
    uint64_t behind = 0;
    for (uint32_t i = (uint32_t)w->n, gap = (uint32_t)n; i-- > 0;) {
        if (!w->columns[i].key.gap)
            behind = w->columns[i].like;
        else if (gap > 0 && ret[gap - 1].column == i)
            ret[--gap].behind = behind;
    }
    return n;
}

/* `b` is not before `a` in their order. */
static bool are_alike(const between *a, const between *b)
{
    return a->before == b->before && a->behind == b->behind && a->part == b->part &&
           b->length <= GAP_LENGTHS * a->length;
}

static void group_these(pp_alike *a, const between *gaps, size_t n, const pp_sampling_whole *w)
{
    for (size_t i = 0, to; i < n; i = to) {
        for (to = i + 1; to < n && are_alike(&gaps[i], &gaps[to]);)
            to++;
        if (gaps[i].behind == 0 || to - i < GAPS_LEAST ||
            (a->gap_rows + 1) * w->n > COLUMNS_MAX / 4)
            continue;
        for (size_t k = i; k < to; k++)
            a->gap_row[gaps[k].column] = (uint32_t)(w->n + a->rows);
        a->rows++;
        a->gap_rows++;
    }
}

static int group_gaps(pp_alike *a, const pp_sampling_whole *w, pp_error *err)
{
    between *gaps = calloc(w->n + 1, sizeof *gaps);
    if (!gaps)
        return pp_error_nomem(err);
    const size_t n = list_gaps(w, gaps);
    qsort(gaps, n, sizeof *gaps, compare_between);
    group_these(a, gaps, n, w);
    free(gaps);
    return 0;
}

/* ---- all ---- */

int pp_alike_find(const pp_sampling_whole *w, bool grouped, pp_alike *ret, pp_error *err)
{
    *ret = (pp_alike){.kernels = calloc(w->n + 1, sizeof *ret->kernels),
                      .gap_row = calloc(w->n + 1, sizeof *ret->gap_row)};
    if (!ret->kernels || !ret->gap_row)
        return pp_error_nomem(err);
    list_kernels(ret, w);
    if (!grouped)
        return 0;
    return group_kernels(ret, w, err) < 0 ? -1 : group_gaps(ret, w, err);
}

uint32_t pp_alike_row(const pp_alike_kernel *k, const pp_sampling_column *c)
{
    return k->group->row + find_part(k->group, c->key.part);
}

void pp_alike_free(pp_alike *a)
{
    free(a->kernels);
    free(a->groups);
    free(a->gap_row);
    *a = (pp_alike){0};
}
