#include "estimate/regression/tests/totals.h"

#include <math.h>
#include <time.h>

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void score_add(sim_totals *t, const sim_score *q)
{
    t->reported += q->reported;
    t->grouped += (double)q->groups;
    t->error += q->error * (double)q->n;
    t->worst = fmax(t->worst, q->worst);
    t->z2 += q->z2;
    t->n += q->n;
    t->within3 += q->within3;
    t->beyond5 += q->beyond5;
    t->windows += q->windows;
    t->misread += q->misread;
    t->silent += q->n == 0;
    t->job = fmax(t->job, q->job_error);
}

int sim_totals_run(sim_totals *t, const sim_config *c, unsigned without, pp_error *err)
{
    sim *s = sim_new(c);
    pp_regression_result *r = NULL;
    s->in.options.without = without;
    const double begun = now();
    const int rc = pp_regression_solve(&s->in, &r, err);
    t->seconds += now() - begun;
    t->runs++;
    if (rc == 0) {
        sim_score q;
        sim_score_of(s, r, &q);
        score_add(t, &q);
        t->clocks += r->clock_spread > 0;
    }
    pp_regression_result_free(r);
    sim_free(s);
    return rc;
}

void sim_totals_add(sim_totals *to, const sim_totals *from)
{
    to->runs += from->runs;
    to->reported += from->reported;
    to->grouped += from->grouped;
    to->error += from->error;
    to->worst = fmax(to->worst, from->worst);
    to->z2 += from->z2;
    to->n += from->n;
    to->within3 += from->within3;
    to->beyond5 += from->beyond5;
    to->windows += from->windows;
    to->misread += from->misread;
    to->silent += from->silent;
    to->clocks += from->clocks;
    to->job = fmax(to->job, from->job);
    to->seconds += from->seconds;
}

const char *sim_totals_verdict(const sim_totals *t)
{
    const double n = (double)t->n;
    if (t->n == 0)
        return "withheld";
    if ((double)t->beyond5 >= 0.01 * n)
        return "confident and wrong";
    return t->error <= 1.5 * n && (double)t->within3 >= 0.97 * n ? "right" : "not right";
}
