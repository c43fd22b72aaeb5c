#include "controller/allowance.h"

static int refuse(pp_error *err, const char *field, int most)
{
    (void)pp_error_field(err, field, "is one too many of this pod: %d are taken", most);
    if (err)
        err->code = PP_ERR_TOO_LARGE;
    return -1;
}

static bool is_known(const pp_allowance *so_far, int64_t process)
{
    for (size_t i = 0; i < so_far->count; i++) {
        if (so_far->processes[i] == process)
            return true;
    }
    return false;
}

void pp_allowance_done(pp_allowance *so_far)
{
    pp_strings_free(&so_far->gpus);
}

static int take_gpu(pp_allowance *so_far, const char *gpu, pp_error *err)
{
    if (pp_strings_contain(&so_far->gpus, gpu))
        return 0;
    if (so_far->gpus.count >= PP_ALLOWANCE_GPUS)
        return refuse(err, "process.gpus", PP_ALLOWANCE_GPUS);
    return pp_strings_add(&so_far->gpus, gpu, err);
}

int pp_allowance_take(pp_allowance *so_far, const pp_wire_process *process, pp_error *err)
{
    for (size_t i = 0; i < process->gpus.count; i++) {
        if (take_gpu(so_far, process->gpus.items[i], err) < 0)
            return -1;
    }
    if (is_known(so_far, process->id))
        return 0;
    if (so_far->count >= PP_ALLOWANCE_PROCESSES)
        return refuse(err, "process.id", PP_ALLOWANCE_PROCESSES);
    so_far->processes[so_far->count++] = (uint16_t)process->id;
    return 0;
}
