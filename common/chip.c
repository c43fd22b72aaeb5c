#include "common/chip.h"

#include <math.h>
#include <stddef.h>

/* FMAs that a multiprocessor does in a cycle. */
static const struct {
    int64_t capability;
    int fp32;
    int tensor;
} rates[] = {
    {70, 64, 512},  {75, 64, 512},   {80, 64, 1024},   {86, 128, 512},
    {89, 128, 512}, {90, 128, 2048}, {100, 128, 4096},
};

const char *pp_peak_unit(pp_peak which)
{
    return which == PP_PEAK_NONE     ? NULL
           : which == PP_PEAK_MEMORY ? "bytes per second"
                                     : "FLOP per second";
}

static double flop_per_cycle(const pp_chip *chip, pp_peak which)
{
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++)
        if (rates[i].capability == chip->capability)
            return 2.0 * (which == PP_PEAK_FP32 ? rates[i].fp32 : rates[i].tensor) *
                   (double)chip->multiprocessors;
    return 0;
}

double pp_chip_peak(const pp_chip *chip, pp_peak which, double sm_mhz)
{
    const double sm_hz = sm_mhz > 0 ? sm_mhz * 1e6 : (double)chip->sm_khz * 1e3;
    double peak = 0;
    if (which == PP_PEAK_MEMORY)
        peak = 2e3 * (double)chip->memory_khz * (double)chip->memory_bits / 8;
    else if (which != PP_PEAK_NONE)
        peak = flop_per_cycle(chip, which) * sm_hz;
    return peak > 0 ? peak : (double)NAN;
}
