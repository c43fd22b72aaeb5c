/* Which metrics the samples of a capture have. */
#include "estimate/sampling/join_internal.h"

#include <math.h>

void pp_sampling_find_known(const pp_sampling *f, bool known[PP_SAMPLING_METRICS])
{
    for (int m = 0; m < PP_SAMPLING_METRICS; m++) {
        size_t with = 0;
        for (size_t i = 0; i < f->n_samples; i++)
            with += isfinite(f->samples[i].values[m]);
        known[m] = 2 * with > f->n_samples;
    }
}

bool pp_sampling_has_known(const bool known[PP_SAMPLING_METRICS], const pp_sampling_sample *sample)
{
    for (int m = 0; m < PP_SAMPLING_METRICS; m++)
        if (known[m] && !isfinite(sample->values[m]))
            return false;
    return true;
}
