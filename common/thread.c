#include "common/thread.h"

#include <stdbool.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { NICE = 10 };

void pp_thread_step_back(void)
{
    static _Thread_local bool done;
    if (done)
        return;
    done = true;
    /* On Linux the priority is the thread's. */
    (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE);
}
