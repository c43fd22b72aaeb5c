/*
 * Groups: what the data cannot tell apart is reported together or not at all.
 *
 * Every column starts alone. Again and again the smallest cluster that is not determined joins
 * the neighbour (same phase, next in the step) with which it is most entangled: the most negative
 * correlation of their estimates, since what one loses the other gains. It ends when each cluster
 * is determined or has no neighbour small enough. A column that is determined alone keeps its own
 * estimate even where a small neighbour has joined it.
 */
#include <math.h>
#include <stdlib.h>

#include "common/cleanup.h"
#include "estimate/regression/design.h"
#include "estimate/regression/groups.h"
#include "estimate/regression/limits.h"
#include "estimate/regression/model.h"

/* Data must have taken this much of the prior's variance, or the prior speaks, not the data. */
#define PRIOR_LEFT 0.25

/** Covariance of the time-weighted means of two ranges of columns. */
static double range_cov(const pp_reg_fit *f, const pp_reg_columns *c, pp_reg_range a,
                        pp_reg_range b)
{
    double sum = 0, ta = 0, tb = 0;
    for (size_t i = a.from; i < a.to; i++)
        ta += c->time[i];
    for (size_t j = b.from; j < b.to; j++)
        tb += c->time[j];
    for (size_t i = a.from; i < a.to; i++)
        for (size_t j = b.from; j < b.to; j++)
            sum += c->time[i] * c->time[j] * f->cov[i * f->p + j];
    return sum / (ta * tb);
}

static double range_time(const pp_reg_columns *c, pp_reg_range a)
{
    double t = 0;
    for (size_t i = a.from; i < a.to; i++)
        t += c->time[i];
    return t;
}

bool pp_reg_determined(const pp_reg_fit *f, const pp_reg_columns *c, size_t from, size_t to,
                       double missing, double max_se, double *ret_se)
{
    pp_reg_range r = {from, to};
    double var = fmax(range_cov(f, c, r, r), 0), time = range_time(c, r), prior = 0;
    for (size_t i = from; i < to; i++)
        prior += c->time[i] * c->time[i] / f->prior_precision[i];
    prior /= time * time;
    var += missing * missing * 2 / f->prior_precision[from];
    *ret_se = sqrt(var);
    return *ret_se <= max_se && var <= PRIOR_LEFT * prior;
}

typedef struct cluster {
    pp_reg_range range;
    double time;
    bool determined;
    bool stuck;
} cluster;

/** Smallest cluster that still wants a partner; n when none does. */
static size_t next_open(const cluster *k, size_t n)
{
    size_t best = n;
    for (size_t i = 0; i < n; i++)
        if (!k[i].determined && !k[i].stuck && (best == n || k[i].time < k[best].time))
            best = i;
    return best;
}

/** The left cluster of the better pair around i: i - 1 or i; n when neither may be joined. */
static size_t best_pair(const pp_reg_fit *f, const pp_reg_columns *c, const cluster *k, size_t n,
                        size_t i, double max_time)
{
    size_t best = n;
    double least = PP_REG_INF;
    for (size_t left = i > 0 ? i - 1 : i; left <= i && left + 1 < n; left++) {
        const cluster *a = &k[left], *b = &k[left + 1];
        if (c->phase[a->range.from] != c->phase[b->range.from] || a->time + b->time > max_time)
            continue;
        double va = range_cov(f, c, a->range, a->range), vb = range_cov(f, c, b->range, b->range);
        double r = range_cov(f, c, a->range, b->range) / sqrt(fmax(va * vb, 1e-300));
        if (r < least) {
            least = r;
            best = left;
        }
    }
    return best;
}

static size_t join(cluster *k, size_t n, size_t left)
{
    k[left].range.to = k[left + 1].range.to;
    k[left].time += k[left + 1].time;
    k[left].stuck = false;
    for (size_t i = left + 1; i + 1 < n; i++)
        k[i] = k[i + 1];
    return n - 1;
}

int pp_reg_group(const pp_reg_fit *f, const pp_reg_columns *c, double max_se, double max_time,
                 pp_reg_range *ranges, pp_error *err)
{
    PP_CLEANUP_FREE cluster *k = calloc(c->n + 1, sizeof *k);
    if (!k)
        return pp_error_nomem(err);
    size_t n = c->n;
    double se;
    for (size_t i = 0; i < n; i++) {
        k[i] = (cluster){{i, i + 1}, c->time[i], false, false};
        k[i].determined = pp_reg_determined(f, c, i, i + 1, 0, max_se, &se);
    }
    for (size_t i = next_open(k, n); i < n; i = next_open(k, n)) {
        size_t left = best_pair(f, c, k, n, i, max_time);
        if (left == n) {
            k[i].stuck = true;
            continue;
        }
        n = join(k, n, left);
        k[left].determined =
            pp_reg_determined(f, c, k[left].range.from, k[left].range.to, 0, max_se, &se);
    }
    int count = 0;
    for (size_t i = 0; i < n; i++) {
        size_t members = c->first[k[i].range.to] - c->first[k[i].range.from];
        if (k[i].determined && members > 1)
            ranges[count++] = k[i].range;
    }
    return count;
}
