/*
 * What others make of the same windows, each told where they lie, beside Regression, which is not:
 * one JSON object per condition and line, time-weighted mean errors in points. Of the values that
 * Regression tells, and of all layers, which the peers always tell. Usage: regression-peers [RUNS
 * [CONDITION [SEED]]] (default 40, all, 9000).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "estimate/regression/tests/conditions.h"
#include "estimate/regression/tests/peers.h"

enum { SHARES = 5 }; /* metrics with a range, and what 100 points of each are */
static const double range[SHARES] = {1, 1, 1, 1, 100};

typedef struct mean {
    double sum, weight;
} mean;

typedef struct totals {
    mean ours, overlap, squares; /* of the values that Regression tells */
    mean all_overlap, all_squares;
    double told;
} totals;

static void add(mean *m, double weight, double value, double truth, size_t metric)
{
    if (isnan(value))
        return;
    m->sum += weight * fabs(value - truth) / range[metric] * 100;
    m->weight += weight;
}

static void score(const sim *s, const pp_regression_result *r, const pp_peers *p, totals *t)
{
    for (size_t i = 0; i < r->n_items; i++)
        for (size_t m = 0; m < SHARES && r->rows[i].phase <= PP_PHASE_BACKWARD; m++) {
            const pp_regression_estimate *e = pp_regression_get(r, i, m);
            const double truth = s->realised[i * SIM_METRICS + m], share = r->rows[i].share;
            const double overlap = p->overlap[i * p->n_metrics + m];
            const double squares = p->squares[i * p->n_metrics + m];
            add(&t->all_overlap, share, overlap, truth, m);
            add(&t->all_squares, share, squares, truth, m);
            if (!e->identifiable)
                continue;
            add(&t->ours, share, e->mean, truth, m);
            add(&t->overlap, share, overlap, truth, m);
            add(&t->squares, share, squares, truth, m);
            t->told += share / SHARES;
        }
}

static int run_one(const sim_config *c, totals *t, pp_error *err)
{
    sim *s = sim_new(c);
    pp_regression_result *r = NULL;
    pp_peers peers = {0};
    pp_regression_window *windows = calloc(s->metrics[0].n_samples + 1, sizeof *windows);
    int rc = windows ? pp_regression_solve(&s->in, &r, err) : pp_error_nomem(err);
    if (rc == 0)
        rc = pp_peers_solve(&s->in, windows, sim_windows(s, windows), &peers, err);
    if (rc == 0 && r)
        score(s, r, &peers, t);
    pp_peers_done(&peers);
    free(windows);
    pp_regression_result_free(r);
    sim_free(s);
    return rc;
}

static void number(const char *name, mean m)
{
    if (m.weight > 0)
        printf(", \"%s\": %.4g", name, m.sum / m.weight);
    else
        printf(", \"%s\": null", name);
}

static int condition_run(const sim_condition *v, int runs, uint64_t seed)
{
    totals t = {0};
    pp_error err = {0};
    for (int i = 0; i < runs; i++) {
        sim_config c = sim_defaults(seed + (uint64_t)i);
        v->change(&c);
        if (run_one(&c, &t, &err) < 0) {
            (void)fprintf(stderr, "regression-peers: %s\n", err.message);
            return -1;
        }
    }
    printf("{\"condition\": \"%s\", \"runs\": %d, \"told\": %.3g", v->name, runs, t.told / runs);
    number("regression_points", t.ours);
    number("overlap_points", t.overlap);
    number("squares_points", t.squares);
    number("overlap_points_of_all", t.all_overlap);
    number("squares_points_of_all", t.all_squares);
    printf("}\n");
    return fflush(stdout);
}

int main(int argc, char **argv)
{
    return sim_conditions_main(argc, argv, condition_run);
}
