#include "estimate/sampling/join.h"

#include "common/array.h"
#include "estimate/sampling/join_internal.h"

#include <math.h>
#include <stdlib.h>

/* No sum or difference of two times overflows. */
#define TIME_MAX (INT64_MAX / 4)
#define RANGE_MAX INT64_C(10000000000) /* ns */

enum { PERIOD_LEAST = 1000 /* ns */, HOLE_PERIODS = 4 };

pp_sampling *pp_sampling_new(int64_t period)
{
    pp_sampling *f = calloc(1, sizeof *f);
    if (f)
        f->period = f->sampled = period;
    return f;
}

void pp_sampling_set_sampled(pp_sampling *f, int64_t period)
{
    f->sampled = period > f->period ? period : f->period;
}

void pp_sampling_free(pp_sampling *f)
{
    if (!f)
        return;
    free(f->kernels);
    free(f->copies);
    free(f->samples);
    free(f);
}

void pp_sampling_clear(pp_sampling *f)
{
    f->n_kernels = f->n_copies = f->n_samples = 0;
}

pp_sampling_input pp_sampling_get_input(const pp_sampling *f)
{
    return (pp_sampling_input){.period = f->period,
                               .sampled = f->sampled,
                               .kernels = f->kernels,
                               .n_kernels = f->n_kernels,
                               .copies = f->copies,
                               .n_copies = f->n_copies,
                               .samples = f->samples,
                               .n_samples = f->n_samples};
}

static int reserve(void *array, size_t *capacity, size_t needed, size_t size, size_t limit,
                   pp_error *err)
{
    if (needed > limit)
        return pp_error_set(err, PP_ERR_TOO_LARGE, "a capture of more than %zu", limit);
    return pp_array_reserve(array, capacity, needed, size, err);
}

static int add_copy(pp_sampling *f, const pp_sampling_kernel *copy, pp_error *err)
{
    if (reserve(&f->copies, &f->copies_max, f->n_copies + 1, sizeof *f->copies,
                PP_SAMPLING_MAX_KERNELS, err) < 0)
        return -1;
    f->copies[f->n_copies++] = *copy;
    return 0;
}

int pp_sampling_add_kernel(pp_sampling *f, const pp_sampling_kernel *kernel, pp_error *err)
{
    if (kernel->start < -TIME_MAX || kernel->end > TIME_MAX || kernel->step < -TIME_MAX ||
        kernel->step > TIME_MAX)
        return pp_error_set(err, PP_ERR_INVALID, "a kernel of an impossible time or step");
    if (kernel->end <= kernel->start)
        return 0; /* takes no time that a sample could see */
    if (kernel->work != PP_SAMPLING_KERNEL)
        return add_copy(f, kernel, err);
    if (reserve(&f->kernels, &f->kernels_max, f->n_kernels + 1, sizeof *f->kernels,
                PP_SAMPLING_MAX_KERNELS, err) < 0)
        return -1;
    f->kernels[f->n_kernels++] = *kernel;
    return 0;
}

int pp_sampling_add_sample(pp_sampling *f, const pp_sampling_sample *sample, pp_error *err)
{
    if (sample->start < -TIME_MAX || sample->end > TIME_MAX)
        return pp_error_set(err, PP_ERR_INVALID, "a sample of an impossible time");
    if (sample->end <= sample->start || sample->end - sample->start > HOLE_PERIODS * f->sampled)
        return 0; /* none, or a hole between two */
    if (reserve(&f->samples, &f->samples_max, f->n_samples + 1, sizeof *f->samples,
                PP_SAMPLING_MAX_SAMPLES, err) < 0)
        return -1;
    f->samples[f->n_samples++] = *sample;
    return 0;
}

static int compare_samples(const void *a, const void *b)
{
    const pp_sampling_sample *x = a;
    const pp_sampling_sample *y = b;
    return x->start < y->start ? -1 : x->start > y->start;
}

/* Both clocks start at 0 then: a double holds the ns since 1970 to 256 ns only. Returns how much
 * nearer the samples' clock has come to the kernels'. */
static int64_t rebase(pp_sampling *f)
{
    if (f->n_kernels == 0 || f->n_samples == 0)
        return 0;
    int64_t kernels = f->kernels[0].start;
    int64_t samples = f->samples[0].start;
    for (size_t i = 0; i < f->n_kernels; i++) {
        f->kernels[i].start -= kernels;
        f->kernels[i].end -= kernels;
    }
    for (size_t i = 0; i < f->n_copies; i++) {
        f->copies[i].start -= kernels;
        f->copies[i].end -= kernels;
    }
    for (size_t i = 0; i < f->n_samples; i++) {
        f->samples[i].start -= samples;
        f->samples[i].end -= samples;
    }
    return samples - kernels;
}

/* Leaves samples out that were taken while no kernels were recorded, whatever the lag, those that
 * lie over the one before (two that touch may overlap by what their clock tells), and such as no
 * sampler takes: what is left of a hostile file comes to no more than its time. */
static void trim(pp_sampling *f, const pp_sampling_clock *clock)
{
    int64_t last = 0, covered = -TIME_MAX;
    size_t n = 0;
    for (size_t i = 0; i < f->n_kernels; i++)
        last = f->kernels[i].end > last ? f->kernels[i].end : last;
    for (size_t i = 0; i < f->n_samples; i++) {
        int64_t at = f->samples[i].start - clock->lag;
        if (at <= -clock->range || at >= last + clock->range ||
            f->samples[i].start < covered - f->sampled / 8 ||
            f->samples[i].end - f->samples[i].start < f->sampled / 4)
            continue;
        covered = f->samples[i].end;
        f->samples[n++] = f->samples[i];
    }
    f->n_samples = n;
}

/* Shares of cycles become rates, which add by time (sums.h). A clock that stands still tells
 * nothing. */
static void tell_rates(pp_sampling *f)
{
    bool known[PP_SAMPLING_METRICS];
    for (size_t i = 0; i < f->n_samples; i++)
        if (!(f->samples[i].values[PP_SAMPLING_CLOCK] > 0))
            f->samples[i].values[PP_SAMPLING_CLOCK] = NAN;
    pp_sampling_find_known(f, known);
    for (size_t i = 0; i < f->n_samples && known[PP_SAMPLING_CLOCK]; i++) {
        float *values = f->samples[i].values;
        for (int m = 0; m < PP_SAMPLING_METRICS; m++)
            if (pp_sampling_is_of_cycles(m))
                values[m] *= values[PP_SAMPLING_CLOCK] / (float)PP_SAMPLING_RATED_GHZ;
    }
}

/* At the right lag it shows, too, which copies and fills run. */
static int find_lag(const pp_sampling *f, const pp_sampling_clock *clock, pp_sampling_line *ret,
                    pp_error *err)
{
    pp_sampling mixed = *f;
    if (f->n_copies == 0 || f->n_kernels == 0)
        return pp_sampling_find_lag(f, clock, ret, err);
    if (pp_sampling_mix(f, &mixed.kernels, &mixed.n_kernels, err) < 0)
        return -1;
    int rc = pp_sampling_find_lag(&mixed, clock, ret, err);
    free(mixed.kernels);
    return rc;
}

static int join(pp_sampling *f, const pp_sampling_clock *clock, const pp_sampling_result *known,
                pp_sampling_sums **ret, pp_error *err)
{
    pp_sampling_line line;
    int64_t nearer = rebase(f);
    pp_sampling_clock near = *clock;
    near.lag -= nearer;
    near.likely -= nearer;
    if (clock->metric < 0 || clock->metric >= PP_SAMPLING_METRICS || clock->range < 0 ||
        clock->range > RANGE_MAX || f->period < PERIOD_LEAST)
        return pp_error_set(err, PP_ERR_INVALID, "an impossible clock, range or period");
    trim(f, &near);
    tell_rates(f);
    if (pp_sampling_cut_copies(f, err) < 0 || find_lag(f, &near, &line, err) < 0 ||
        pp_sampling_sum(f, &line, known, ret, err) < 0)
        return -1;
    (*ret)->lag += nearer;
    return 0;
}

int pp_sampling_join(pp_sampling *f, const pp_sampling_clock *clock,
                     const pp_sampling_result *known, pp_sampling_sums **ret, pp_error *err)
{
    if (f->n_kernels > 1)
        qsort(f->kernels, f->n_kernels, sizeof *f->kernels, pp_sampling_compare_starts);
    if (f->n_samples > 1)
        qsort(f->samples, f->n_samples, sizeof *f->samples, compare_samples);
    int rc = join(f, clock, known, ret, err);
    pp_sampling_clear(f);
    return rc;
}
