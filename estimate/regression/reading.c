/*
 * A driver that measures windows by one clock and takes them over by another: what a reading sees
 * newest is decided by a delay that drifts with the beat of both, up to a window's length, and then
 * falls by as much, where two windows are taken over at once. The cheapest path through pairs of a
 * delay and a window number (Viterbi): delays drift slowly, values say which windows were read.
 */
#include <math.h>
#include <stdlib.h>

#include "common/cleanup.h"
#include "estimate/regression/limits.h"
#include "estimate/regression/reading.h"
#include "estimate/regression/windows.h"

#define PER_WINDOW 16 /* delays told apart */
#define NOMINAL (PER_WINDOW - 1)
#define DELAYS (2 * NOMINAL + 1) /* less than a window on either side of the nominal one */
/* In log likelihood, per reading. */
#define DRIFTS 3.0   /* by one delay */
#define FALLS 6.0    /* to any other: two windows at once, or behind a pause */
#define CONTRARY 8.0 /* at most, of a reading against the delay: it may have come late itself */

/** How dear the cheapest path is to each pair of a window number, relative to nominal, and a delay.
 */
typedef struct column {
    double cost[PP_REG_STATES][DELAYS];
} column;

/** The pair of the reading before on that path, as number * DELAYS + delay. */
typedef struct origin {
    uint8_t pair[PP_REG_STATES][DELAYS];
} origin;

/** Windows from a window's end until it can be read, more than nominal. */
static double delay_of(int i)
{
    return (double)(i - NOMINAL) / PER_WINDOW;
}

/** Cost of having seen window floor(u) + state - 1 newest at this delay; u and delay in windows. */
static double contrary(const pp_reg_scrapes *s, double u, int state, double delay)
{
    const double scale = s->window / fmax(s->jitter, s->window / PER_WINDOW / 2);
    const double age = u - (floor(u) + state - 1) - delay; /* 0 to 1 where it was the newest */
    const double off = age < 0 ? -age : age > 1 ? age - 1 : 0;
    return off > 0 ? fmin(0.1 + off * scale, CONTRARY) : 0;
}

/** The cheapest way to each delay from the one before, the window number being `b` there. */
static void drift(const column *before, int b, double *cost, uint8_t *pair)
{
    const double *from = before->cost[b];
    int best = 0;
    for (int i = 1; i < DELAYS; i++)
        best = from[i] < from[best] ? i : best;
    for (int i = 0; i < DELAYS; i++) {
        int at = best;
        cost[i] = from[best] + FALLS;
        for (int k = i > 0 ? i - 1 : i; k <= i + 1 && k < DELAYS; k++) {
            const double c = from[k] + (k == i ? 0 : DRIFTS);
            at = c < cost[i] ? k : at;
            cost[i] = fmin(c, cost[i]);
        }
        pair[i] = (uint8_t)(b * DELAYS + at);
    }
}

/** `ahead`: by how many windows the nominal one is after that of the reading before. */
static void column_step(const column *before, double ahead, int8_t change, const double *misfit,
                        column *ret, origin *from)
{
    double cost[DELAYS];
    uint8_t pair[DELAYS];
    for (int a = 0; a < PP_REG_STATES; a++)
        for (int i = 0; i < DELAYS; i++)
            ret->cost[a][i] = PP_REG_INF;
    for (int b = 0; b < PP_REG_STATES; b++) {
        drift(before, b, cost, pair);
        for (int a = 0; a < PP_REG_STATES; a++) {
            const double m =
                misfit[a * PP_REG_STATES + b] + pp_reg_change_cost(change, ahead + a - b);
            for (int i = 0; i < DELAYS; i++)
                if (cost[i] + m < ret->cost[a][i]) {
                    ret->cost[a][i] = cost[i] + m;
                    from->pair[a][i] = pair[i];
                }
        }
    }
}

static void contrary_add(const pp_reg_scrapes *s, double u, column *c)
{
    for (int a = 0; a < PP_REG_STATES; a++)
        for (int i = 0; i < DELAYS; i++)
            c->cost[a][i] += contrary(s, u, a, delay_of(i));
}

/** Back from the cheapest end. */
static void path_back(const column *last, const origin *from, size_t n, double *number)
{
    int a = 1, i = NOMINAL;
    for (int b = 0; b < PP_REG_STATES; b++)
        for (int k = 0; k < DELAYS; k++)
            if (last->cost[b][k] < last->cost[a][i]) {
                a = b;
                i = k;
            }
    for (size_t j = n; j-- > 0;) {
        const uint8_t pair = from[j].pair[a][i];
        number[j] += a - 1;
        a = pair / DELAYS;
        i = pair % DELAYS;
    }
}

int pp_reg_reading_decode(const pp_reg_scrapes *s, double phase, const double *misfit,
                          double *number, pp_error *err)
{
    column columns[2] = {{{{0}}}};
    if (s->n == 0)
        return 0;
    PP_CLEANUP_FREE origin *from = calloc(s->n, sizeof *from);
    if (!from)
        return pp_error_nomem(err);
    for (size_t j = 0; j < s->n; j++) {
        const double u = (s->stamps[j] - phase) / s->window;
        column *now = &columns[j % 2];
        number[j] = floor(u);
        if (j > 0)
            column_step(&columns[(j - 1) % 2], number[j] - number[j - 1], s->change[j],
                        misfit + j * PP_REG_PAIRS, now, &from[j]);
        contrary_add(s, u, now);
    }
    path_back(&columns[(s->n - 1) % 2], from, s->n, number);
    return 0;
}
