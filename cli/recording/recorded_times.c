#include "cli/recording/recorded_times.h"

#include "cli/recording/chip.h"
#include "cli/recording/recording.h"
#include "cli/results/item_spread.h"
#include "cli/results/results.h"
#include "common/cleanup.h"
#include "estimate/times/pieces.h"

#include <limits.h>
#include <unistd.h>

static int take_batch(void *user, const pp_wire_batch *batch, pp_error *err)
{
    return pp_activity_builder_add(user, batch, err);
}

static int find_number(void *user, const pp_piece_name *name, uint32_t *ret, pp_error *err)
{
    const bool whole = *name->type == '(';
    return pp_item_number(user, pp_wire_phase_name(name->phase), name->layer, whole, ret, err);
}

static int add_to_gpu(const pp_activity *activity, int depth, json_t *gpu, pp_error *err)
{
    PP_CLEANUP_JSON json_t *keys = json_object();
    pp_item_numbers numbers = {keys, depth};
    pp_spread *spread = NULL;
    if (!keys)
        return pp_error_nomem(err);
    int rc = pp_pieces_collect(activity, pp_results_text(gpu, "gpu"), find_number, &numbers,
                               &spread, err);
    if (rc == 0)
        rc = pp_item_spread_describe(spread, &numbers, gpu, err);
    if (rc == 0)
        rc = pp_chip_describe(activity, gpu, err);
    pp_spread_free(spread);
    return rc;
}

static int add_to_gpus(const pp_activity *activity, int depth, json_t *results, pp_error *err)
{
    size_t i;
    json_t *gpu;
    json_array_foreach(json_object_get(results, "gpus"), i, gpu)
    {
        if (add_to_gpu(activity, depth, gpu, err) < 0)
            return -1;
    }
    return 0;
}

/* Whether a run of this release has written them; of layers that were put together they are others.
 */
static bool are_told(const json_t *results)
{
    size_t i;
    const json_t *gpu;
    json_array_foreach(json_object_get(results, "gpus"), i, gpu)
    {
        if (!json_object_get(gpu, "stepMsStandardError"))
            return false;
    }
    return true;
}

int pp_recorded_times(const char *folder, int depth, json_t *results, pp_error *err)
{
    char path[PATH_MAX + 16];
    (void)snprintf(path, sizeof path, "%.4095s/batches.jsonl", folder);
    if ((depth == 0 && are_told(results)) || access(path, F_OK) < 0)
        return 0;
    pp_activity_builder *builder = pp_activity_builder_new();
    if (!builder)
        return pp_error_nomem(err);
    int rc = pp_recording_batches(folder, take_batch, builder, err);
    if (rc == 0)
        rc = add_to_gpus(pp_activity_builder_get(builder), depth, results, err);
    pp_activity_builder_free(builder);
    return rc;
}
