/*
 * What a training says of the kernels that it launches on the virtual GPU by pp_cupti_launch(): how
 * much of the GPU they take. One thread launches.
 */
#include "e2e/gpu/driver/timeline.h"

#include <string.h>

/** Begins: the file that those who sample read, and the GPU's UUID. 0: it is there. */
int vgpu_begin(const char *path, const char *uuid);

/** Of the kernels that are launched from now on, as vgpu_kernel has them. */
void vgpu_levels(const float levels[VGPU_LEVELS], float tail);

/** How often the GPU's monitors began to be sampled, by whomever. */
unsigned vgpu_sampled(void);

/** For cupti.c: a kernel will run then. */
void vgpu_ran(int64_t begin, int64_t end);

static vgpu_timeline *timeline;
static vgpu_kernel next;

int vgpu_begin(const char *path, const char *uuid)
{
    timeline = vgpu_timeline_open(path, uuid);
    return timeline ? 0 : -1;
}

void vgpu_levels(const float levels[VGPU_LEVELS], float tail)
{
    memcpy(next.levels, levels, sizeof next.levels);
    next.tail = tail;
}

unsigned vgpu_sampled(void)
{
    return timeline ? vgpu_timeline_sampled(timeline) : 0;
}

void vgpu_ran(int64_t begin, int64_t end)
{
    next.begin = begin;
    next.end = end;
    if (timeline && begin < end)
        vgpu_timeline_add(timeline, &next);
}
