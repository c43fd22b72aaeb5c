#include "estimate/times/series.h"

#include <math.h>

enum {
    BLOCKS = 24,     /* of all values: few enough to be long, many enough to have a spread */
    LEAST_UNITS = 8, /* whose spread says anything */
    LEAST_IN_BLOCK = 2,
    LEAST_STRETCHES = 2,
};

/* More would leave next to nothing of any number of values. */
#define MOST_MEMORY 0.95

static const pp_spread_mean unknown = {(double)NAN, (double)NAN, (double)NAN};

/* Of means over units of so much weight each. */
typedef struct units {
    double n, weight, sum;        /* sum: of weight times value */
    double squares, cross, whole; /* of weight^2: times value^2, times value, by itself */
} units;

static void add_unit(units *u, double weight, double sum)
{
    if (!(weight > 0))
        return;
    const double value = sum / weight;
    u->n++;
    u->weight += weight;
    u->sum += sum;
    u->squares += weight * weight * value * value;
    u->cross += weight * weight * value;
    u->whole += weight * weight;
}

/* Of a ratio of sums (Cochran: Sampling Techniques, 1977, 6.3). */
static pp_spread_mean tell(const units *u, double least)
{
    if (u->n < least)
        return unknown;
    const double mean = u->sum / u->weight;
    const double squares = u->squares - 2 * mean * u->cross + mean * mean * u->whole;
    return (pp_spread_mean){mean, sqrt(fmax(squares, 0) * u->n / (u->n - 1)) / u->weight, u->n - 1};
}

static double weight_of(const pp_series *s, size_t at)
{
    return s->weights ? s->weights[at] : 1;
}

static double least_of(const pp_series *s)
{
    return s->least > 0 ? (double)s->least : LEAST_UNITS;
}

static bool follows(const pp_series *s, size_t at)
{
    return at > 0 && s->stretch[at] == s->stretch[at - 1];
}

/* How much of what a value is off by the next one is off by, too: the autocorrelation at a lag of
 * one, less what it is too low by in so few (Kendall: Biometrika 41, 1954, 403-404). */
static double memory_of(const pp_series *s, double mean)
{
    double cross = 0, squares = 0, n = 0;
    for (size_t i = 1; i < s->n; i++) {
        if (!follows(s, i))
            continue;
        const double now = s->values[i] - mean * weight_of(s, i);
        const double before = s->values[i - 1] - mean * weight_of(s, i - 1);
        cross += now * before;
        squares += pow(now, 2) / 2 + pow(before, 2) / 2;
        n++;
    }
    const double c = squares > 0 ? cross / squares : 0;
    return n > 0 ? fmin(fmax(c + (1 + 3 * c) / n, 0), MOST_MEMORY) : 0;
}

/* Values that remember the one before are worth fewer (Bence: Ecology 76, 1995, 628-639). */
static pp_spread_mean tell_of_singles(const pp_series *s)
{
    units single = {0};
    for (size_t i = 0; i < s->n; i++)
        add_unit(&single, weight_of(s, i), s->values[i]);
    pp_spread_mean t = tell(&single, least_of(s));
    const double memory = isnan(t.standard_error) ? 0 : memory_of(s, t.mean);
    const double lost = (1 + memory) / (1 - memory);
    t.standard_error *= sqrt(lost);
    t.freedom = isnan(t.standard_error) ? t.freedom : fmax(single.n / lost - 1, 1);
    return t;
}

/* By stretches, or within them by blocks of as many values. */
static pp_spread_mean tell_of_parts(const pp_series *s, size_t length, double least)
{
    units parts = {0};
    double weight = 0, sum = 0;
    size_t in_part = 0;
    for (size_t i = 0; i < s->n; i++) {
        if (i > 0 && (!follows(s, i) || in_part == length)) {
            add_unit(&parts, weight, sum);
            weight = sum = 0;
            in_part = 0;
        }
        weight += weight_of(s, i);
        sum += s->values[i];
        in_part++;
    }
    add_unit(&parts, weight, sum);
    return tell(&parts, least);
}

static pp_spread_mean larger(pp_spread_mean a, pp_spread_mean b)
{
    if (isnan(a.standard_error) || isnan(b.standard_error))
        return isnan(a.standard_error) ? b : a;
    return b.standard_error > a.standard_error ? b : a;
}

pp_spread_mean pp_series_mean(const pp_series *s)
{
    const size_t ideal = s->n / BLOCKS;
    const pp_spread_mean blocks =
        tell_of_parts(s, ideal > LEAST_IN_BLOCK ? ideal : LEAST_IN_BLOCK, least_of(s));
    const pp_spread_mean within = s->coarse ? blocks : larger(tell_of_singles(s), blocks);
    if (!s->drawn || isnan(within.standard_error))
        return within;
    const pp_spread_mean stretches = tell_of_parts(s, s->n, LEAST_STRETCHES);
    if (isnan(stretches.standard_error))
        return within;
    return (pp_spread_mean){within.mean, fmax(within.standard_error, stretches.standard_error),
                            fmin(within.freedom, stretches.freedom)};
}
