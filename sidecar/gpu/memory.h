/* How much memory a container has left. */
#ifndef PP_SIDECAR_GPU_MEMORY_H
#define PP_SIDECAR_GPU_MEMORY_H

#include <stdint.h>

/**
 * Bytes up to the limit of the control group whose files lie in `root` (/sys/fs/cgroup), files that
 * could be dropped counted as free: version 2, else version 1. INT64_MAX where there is no limit,
 * or none that can be read.
 */
int64_t pp_memory_left(const char *root);

#endif
