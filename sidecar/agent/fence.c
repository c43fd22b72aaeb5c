#include "sidecar/agent/fence.h"

#include <stdatomic.h>

/* ThreadSanitizer knows no fences, and says so. */
__attribute__((no_sanitize("thread"))) void pp_read_fence(void)
{
    atomic_thread_fence(memory_order_acquire);
}
