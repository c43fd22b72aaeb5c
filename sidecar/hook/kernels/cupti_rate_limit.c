/*
 * How often CUPTI may be attached. Each time that it is left it keeps 0.6 MiB of the GPU's memory
 * and some 80 KiB of the process's (measured on an H200 with CUDA 13), so a training of weeks must
 * not be recorded in every capture. Busy times need some captures only: a session gets its share,
 * and a process that sees many sessions an end.
 */
#include "sidecar/hook/hook.h"

enum { OF_A_SESSION = 32, OF_A_PROCESS = 256 };

static struct {
    uint32_t session;
    int of_session, of_process;
} used;

bool pp_cupti_rate_left(uint32_t session)
{
    if (session != used.session)
        used.of_session = 0;
    used.session = session;
    return used.of_session < OF_A_SESSION && used.of_process < OF_A_PROCESS;
}

void pp_cupti_rate_use(void)
{
    used.of_session++;
    used.of_process++;
}
