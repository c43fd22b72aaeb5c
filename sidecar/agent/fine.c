#include "sidecar/agent/fine.h"

#include "common/cleanup.h"
#include "sidecar/agent/fine_internal.h"

pp_fine *pp_fine_new(int64_t period)
{
    pp_fine *f = calloc(1, sizeof *f);
    if (f)
        f->period = period;
    return f;
}

void pp_fine_free(pp_fine *f)
{
    if (!f)
        return;
    free(f->kernels);
    free(f->samples);
    free(f);
}

static int reserve(void *array, size_t *capacity, size_t needed, size_t size, size_t limit,
                   pp_error *err)
{
    if (needed > limit)
        return pp_error_set(err, PP_ERR_TOO_LARGE, "a stretch of more than %zu", limit);
    if (needed <= *capacity)
        return 0;
    size_t more = needed + needed / 2 + 256;
    void *grown = realloc(*(void **)array, more * size);
    if (!grown)
        return pp_error_nomem(err);
    *(void **)array = grown;
    *capacity = more;
    return 0;
}

int pp_fine_add_kernel(pp_fine *f, const pp_fine_kernel *kernel, pp_error *err)
{
    if (kernel->end <= kernel->start)
        return 0; /* takes no time that a sample could see */
    if (reserve(&f->kernels, &f->kernels_max, f->n_kernels + 1, sizeof *f->kernels,
                PP_FINE_MAX_KERNELS, err) < 0)
        return -1;
    f->kernels[f->n_kernels++] = *kernel;
    return 0;
}

int pp_fine_add_sample(pp_fine *f, const pp_fine_sample *sample, pp_error *err)
{
    if (sample->end <= sample->start)
        return 0;
    if (reserve(&f->samples, &f->samples_max, f->n_samples + 1, sizeof *f->samples,
                PP_FINE_MAX_SAMPLES, err) < 0)
        return -1;
    f->samples[f->n_samples++] = *sample;
    return 0;
}

static int compare_kernels(const void *a, const void *b)
{
    const pp_fine_kernel *x = a;
    const pp_fine_kernel *y = b;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

static int compare_samples(const void *a, const void *b)
{
    const pp_fine_sample *x = a;
    const pp_fine_sample *y = b;
    return x->start < y->start ? -1 : x->start > y->start;
}

int pp_fine_join(pp_fine *f, const pp_fine_clock *clock, pp_fine_sums **ret, pp_error *err)
{
    pp_fine_line line;
    if (f->n_kernels > 1)
        qsort(f->kernels, f->n_kernels, sizeof *f->kernels, compare_kernels);
    if (f->n_samples > 1)
        qsort(f->samples, f->n_samples, sizeof *f->samples, compare_samples);
    int rc = pp_fine_find_lag(f, clock, &line, err);
    if (rc == 0)
        rc = pp_fine_sum(f, &line, ret, err);
    f->n_kernels = f->n_samples = 0;
    return rc;
}
