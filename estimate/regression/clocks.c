/*
 * Item i's clock, relative to the others', moves a window k by x_ki (b_i - fit_k) for each unit of
 * its logarithm g_i: what it moves beyond what values take is regressed out of what is left of the
 * windows, over all metrics of the SMs together, as these have the clocks in common. That gives a
 * score for each item, whose variance comes from how blocks of steps differ in it (sandwich), so
 * that values which vary from step to step do not pass for clocks. The variance of g between items
 * is what the scores spread by beyond their errors, by the method of moments (DerSimonian and
 * Laird, Controlled Clinical Trials 7, 1986), where Cochran's Q (Biometrics 10, 1954) says that
 * they do: scores of neighbours go together, so Q's distribution is Satterthwaite's (Biometrics
 * Bulletin 2, 1946).
 */
#include "estimate/regression/clocks.h"

#include <math.h>
#include <stdlib.h>

#include "common/cleanup.h"
#include "common/vector.h"
#include "estimate/regression/limits.h"
#include "estimate/regression/linalg.h"
#include "estimate/regression/parts.h"

/* A block has so many windows, and so many steps: within a step windows share their draws. */
#define BLOCK_WINDOWS 8
#define BLOCK_STEPS 2
#define LEAST_BLOCKS 10
#define MOST_BLOCKS 256
/* Normal quantile of one in twenty. Q misses much where items are few (Higgins and Thompson,
 * Statistics in Medicine 21, 2002), and to miss clocks is worse than to take errors for wider. */
#define CLEARLY 1.645
/* What is looked for: scores that would show clocks of this spread weigh most. */
#define USUAL_SD 0.05
/* Of the logarithm of clocks between 1.58 and 1.98 GHz, as of an H200's products in bfloat16 and
 * its other kernels; the widest spread between two limits is half of their distance (Popoviciu,
 * Mathematica 9, 1935). */
#define MOST_SD (0.5 * log(1.98 / 1.58))

static bool is_of_cycles(const pp_reg_solver *s, size_t metric)
{
    return s->in->metrics[s->order[metric]].of_cycles && pp_reg_has(s->in, PP_REGRESSION_CLOCKS);
}

static int reserve(pp_reg_solver *s, size_t metric, pp_error *err)
{
    pp_reg_clocks *c = &s->clocks;
    if (!c->of) {
        const pp_reg_timeline *t = &s->timeline;
        const double all = t->observed[2 * t->n_observed - 1] - t->observed[0];
        const double least =
            fmax(BLOCK_WINDOWS * s->windows.window, BLOCK_STEPS * s->timeline.step_mean);
        c->block = fmax(least, all / MOST_BLOCKS);
        c->n_blocks = (size_t)(all / c->block) + 1;
        c->n = s->columns.n * (s->in->kernels_known ? 2 : 1);
        c->of = calloc(s->in->n_metrics + 1, sizeof *c->of);
        if (!c->of)
            return pp_error_nomem(err);
    }
    pp_reg_metric_clocks *of = &c->of[metric];
    of->move = calloc((s->columns.n + c->n + c->n_blocks) * c->n + 1, sizeof *of->move);
    if (!of->move)
        return pp_error_nomem(err);
    of->information = of->move + s->columns.n * c->n;
    of->pull = of->information + c->n * c->n;
    return 0;
}

void pp_reg_clocks_done(pp_reg_solver *s)
{
    for (size_t m = 0; s->clocks.of && m < s->in->n_metrics; m++)
        free(s->clocks.of[m].move);
    free(s->clocks.of);
    s->clocks = (pp_reg_clocks){0};
}

/** scores := of windows by clocks, whitened: of columns while their kernels run, then, where that
 * is another time, of the gaps beside these. */
static int scores_fill(const pp_reg_solver *s, size_t metric, const pp_reg_rows *u, double *scores,
                       pp_error *err)
{
    const pp_reg_fit *f = &s->fits[metric];
    const pp_reg_own_window *at = &s->own[metric];
    const size_t n = u->n, p = f->p, q = s->clocks.n;
    PP_CLEANUP_FREE double *gaps = calloc(n * p + 1, sizeof *gaps);
    if (!gaps)
        return pp_error_nomem(err);
    const pp_reg_window_set windows = pp_reg_windows_of(s, u->ends, u->lengths, n, at->window);
    if (q > p)
        pp_reg_design_gaps(&s->design, &s->timeline, &s->columns, &windows, at->lag, gaps);
    double idle = 0;
    for (size_t k = 0; k < p; k++)
        idle = s->columns.phase[k] == PP_PHASE_IDLE ? f->b[k] : idle;
    for (size_t i = 0; i < n; i++) {
        const double *x = s->design.x + i * p;
        const double fit = pp_dot(x, f->b, p);
        for (size_t k = 0; k < p; k++)
            scores[i * q + k] =
                q > p && s->columns.phase[k] == PP_PHASE_IDLE ? 0 : x[k] * (f->b[k] - fit);
        for (size_t k = p; k < q; k++)
            scores[i * q + k] = gaps[i * p + k - p] * (idle - fit);
    }
    pp_reg_band_forward(s->work.band, n, s->design.band, scores, q);
    return 0;
}

/** to[a * ny + b] += sum of x[., a] y[., b]. */
static void products_add(const double *x, size_t nx, const double *y, size_t ny, size_t n,
                         double *to)
{
    for (size_t i = 0; i < n; i++, x += nx, y += ny)
        for (size_t a = 0; a < nx; a++)
            for (size_t b = 0; x[a] != 0 && b < ny; b++)
                to[a * ny + b] += x[a] * y[b];
}

/** Lower half of to[a * nx + b] += sum of x[., a] x[., b]. */
static void squares_add(const double *x, size_t nx, size_t n, double *to)
{
    for (size_t i = 0; i < n; i++, x += nx)
        for (size_t a = 0; a < nx; a++)
            for (size_t b = 0; x[a] != 0 && b <= a; b++)
                to[a * nx + b] += x[a] * x[b];
}

/** move := how b goes with clocks; scores -= what that takes of them; information is of what is
 * left. */
static void values_take(const pp_reg_solver *s, const pp_reg_fit *f, pp_reg_metric_clocks *of,
                        double *scores, double *shared)
{
    const size_t n = s->design.n, p = f->p, q = s->clocks.n;
    double *info = of->information;
    products_add(s->work.wx, p, scores, q, n, shared);
    squares_add(scores, q, n, info);
    for (size_t a = 0; a < p; a++)
        for (size_t k = 0; k < p; k++)
            for (size_t b = 0; b < q; b++)
                of->move[a * q + b] += f->cov[a * p + k] * shared[k * q + b] / f->noise2;
    for (size_t k = 0; k < p; k++)
        for (size_t a = 0; a < q; a++)
            for (size_t b = 0; b <= a; b++)
                info[a * q + b] -= shared[k * q + a] * of->move[k * q + b];
    for (size_t a = 0; a < q; a++)
        for (size_t b = 0; b <= a; b++)
            info[b * q + a] = info[a * q + b] /= f->noise2;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < p; k++) {
            const double x = s->work.wx[i * p + k];
            for (size_t j = 0; x != 0 && j < q; j++)
                scores[i * q + j] -= x * of->move[k * q + j];
        }
}

static void pulls_add(const pp_reg_solver *s, const pp_reg_fit *f, const pp_reg_rows *u,
                      const double *scores, double *pull)
{
    const size_t q = s->clocks.n;
    for (size_t i = 0; i < u->n; i++) {
        const double at = (u->ends[i] - s->timeline.observed[0]) / s->clocks.block;
        const size_t block = (size_t)fmin(fmax(at, 0), (double)(s->clocks.n_blocks - 1));
        const double e = pp_reg_residual(&s->work, f, i) / f->noise2;
        for (size_t k = 0; k < q; k++)
            pull[block * q + k] += scores[i * q + k] * e;
    }
}

int pp_reg_clocks_score(pp_reg_solver *s, size_t metric, const pp_reg_rows *u, double **ret_scores,
                        pp_error *err)
{
    const pp_reg_fit *f = &s->fits[metric];
    *ret_scores = NULL;
    if (!is_of_cycles(s, metric))
        return 0;
    if (reserve(s, metric, err) < 0)
        return -1;
    const size_t q = s->clocks.n;
    PP_CLEANUP_FREE double *shared = calloc(f->p * q + 1, sizeof *shared);
    PP_CLEANUP_FREE double *scores = calloc(u->n * q + 1, sizeof *scores);
    if (!shared || !scores)
        return pp_error_nomem(err);
    if (scores_fill(s, metric, u, scores, err) < 0)
        return -1;
    values_take(s, f, &s->clocks.of[metric], scores, shared);
    pulls_add(s, f, u, scores, s->clocks.of[metric].pull);
    *ret_scores = PP_TAKE(scores);
    return 0;
}

double *pp_reg_clocks_move(const pp_reg_solver *s, size_t metric)
{
    return s->clocks.of ? s->clocks.of[metric].move : NULL;
}

void pp_reg_clocks_job(pp_reg_solver *s, size_t metric, const double *shares)
{
    const double *move = pp_reg_clocks_move(s, metric);
    for (size_t i = 0; move && i < s->clocks.n; i++) {
        double sum = 0;
        for (size_t k = 0; k < s->columns.n; k++)
            sum += shares[k] * move[k * s->clocks.n + i];
        s->clocks.of[metric].job += sum * sum;
    }
}

/* What all metrics that fit say of clocks. */
typedef struct evidence {
    size_t p;
    double *information; /* p x p */
    double *pull;        /* [block * p + column] */
    double *z2;          /* [p] a column's score, squared, over its variance */
    double *gain;        /* [p] what is added to that for a variance of 1 */
    double *weight;      /* [p] */
    size_t n_blocks;     /* that hold any window */
} evidence;

/* False: memory is out. */
static bool evidence_init(evidence *e, const pp_reg_solver *s)
{
    const size_t p = s->clocks.n, n = s->clocks.n_blocks;
    *e = (evidence){.p = p, .information = calloc(p * p + n * p + 3 * p + 1, sizeof(double))};
    if (!e->information)
        return false;
    e->pull = e->information + p * p;
    e->z2 = e->pull + n * p;
    e->gain = e->z2 + p;
    e->weight = e->gain + p;
    return true;
}

static void evidence_sum(evidence *e, const pp_reg_solver *s)
{
    const size_t p = e->p;
    for (size_t m = 0; m < s->in->n_metrics; m++) {
        const pp_reg_metric_clocks *of = &s->clocks.of[m];
        if (!of->move || s->ret->fits[s->order[m]].doubt != PP_REGRESSION_FITS)
            continue;
        for (size_t i = 0; i < p * p; i++)
            e->information[i] += of->information[i];
        for (size_t i = 0; i < s->clocks.n_blocks * p; i++)
            e->pull[i] += of->pull[i];
    }
    for (size_t b = 0; b < s->clocks.n_blocks; b++) {
        size_t k = 0;
        while (k < p && e->pull[b * p + k] == 0)
            k++;
        e->n_blocks += k < p;
    }
}

/** Fills z2, gain and weight; columns that tell nothing have none. Blocks give the variance, so z2
 * is the square of a Student's t: its mean is taken out. */
static void scores_weigh(evidence *e, size_t n_blocks)
{
    const size_t p = e->p;
    const double n = (double)e->n_blocks, freedom = n - 1;
    for (size_t i = 0; i < p; i++) {
        double sum = 0, squares = 0, gain = 0;
        for (size_t b = 0; b < n_blocks; b++) {
            sum += e->pull[b * p + i];
            squares += e->pull[b * p + i] * e->pull[b * p + i];
        }
        const double variance = (squares - sum * sum / n) * n / (n - 1);
        if (!(variance > 0) || !(e->information[i * p + i] > 0))
            continue;
        for (size_t j = 0; j < p; j++)
            gain += e->information[i * p + j] * e->information[i * p + j];
        e->z2[i] = sum * sum / variance * (freedom - 2) / freedom;
        e->gain[i] = gain / variance;
        e->weight[i] = e->gain[i] * USUAL_SD * USUAL_SD / (1 + e->gain[i] * USUAL_SD * USUAL_SD);
    }
}

/** Whether Q, of this mean, is beyond what scores without clocks come to (Wilson and Hilferty,
 * Proceedings of the National Academy of Sciences 17, 1931). */
static bool is_clear(const evidence *e, double q, double mean)
{
    const size_t p = e->p;
    const double freedom = (double)e->n_blocks - 1;
    double together = 0;
    for (size_t i = 0; i < p; i++)
        for (size_t j = 0; j < p; j++) {
            const double a = e->information[i * p + j];
            if (e->weight[i] > 0 && e->weight[j] > 0)
                together += e->weight[i] * e->weight[j] * a * a /
                            (e->information[i * p + i] * e->information[j * p + j]);
        }
    /* Squares of t vary more than those of normals. */
    const double df = mean * mean / together * (freedom - 3) / (freedom - 1);
    const double u = 2 / (9 * df);
    const double z = (cbrt(q / mean) - (1 - u)) / sqrt(u);
    return z > CLEARLY;
}

int pp_reg_clocks_find(pp_reg_solver *s, pp_error *err)
{
    evidence e;
    if (!s->clocks.of)
        return 0;
    if (!evidence_init(&e, s))
        return pp_error_nomem(err);
    evidence_sum(&e, s);
    double q = 0, mean = 0, gain = 0;
    if (e.n_blocks >= LEAST_BLOCKS)
        scores_weigh(&e, s->clocks.n_blocks);
    for (size_t i = 0; i < e.p; i++) {
        q += e.weight[i] * e.z2[i];
        mean += e.weight[i];
        gain += e.weight[i] * e.gain[i];
    }
    if (mean > 0 && is_clear(&e, q, mean))
        s->clocks.variance = fmin((q - mean) / gain, MOST_SD * MOST_SD);
    s->ret->clock_spread = sqrt(s->clocks.variance);
    free(e.information);
    return 0;
}

bool pp_reg_clocks_widen(pp_reg_solver *s, size_t metric)
{
    const double variance = s->clocks.variance, *move = pp_reg_clocks_move(s, metric);
    const size_t q = s->clocks.n;
    pp_reg_fit *f = &s->fits[metric];
    pp_regression_estimate *job = &s->ret->fits[s->order[metric]].job;
    if (!(variance > 0) || !move)
        return false;
    for (size_t a = 0; a < f->p; a++)
        for (size_t b = 0; b < f->p; b++)
            f->cov[a * f->p + b] += variance * pp_dot(move + a * q, move + b * q, q);
    if (s->clocks.of[metric].job > 0)
        job->standard_error = hypot(job->standard_error,
                                    sqrt(variance * s->clocks.of[metric].job) * s->scale[metric]);
    return true;
}
