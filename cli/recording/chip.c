#include "cli/recording/chip.h"

#include "cli/results/results.h"

#include <inttypes.h>

int pp_chip_describe(const pp_activity *activity, json_t *gpu, pp_error *err)
{
    const char *uuid = pp_results_text(gpu, "gpu");
    const char *model = pp_activity_gpu_model(activity, uuid);
    const pp_chip *c = pp_activity_chip(activity, uuid);
    if (*model && json_object_set_new(gpu, "gpuModel", json_string(model)) < 0)
        return pp_error_nomem(err);
    if (c->multiprocessors <= 0)
        return 0;
    json_t *chip =
        json_sprintf("compute capability %" PRId64 ".%" PRId64 ", %" PRId64 " SMs, %" PRId64
                     " MHz, %" PRId64 " bits of memory at %" PRId64 " MHz",
                     c->capability / 10, c->capability % 10, c->multiprocessors, c->sm_khz / 1000,
                     c->memory_bits, c->memory_khz / 1000);
    return json_object_set_new(gpu, "chip", chip) == 0 ? 0 : pp_error_nomem(err);
}
