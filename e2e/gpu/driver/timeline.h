/*
 * What ran on the virtual GPU, and when: a ring of kernels in a file that processes share. The
 * training's process writes it, through the stand-in of CUPTI by which it launches kernels; what
 * samples the GPU, in other processes, reads means of it.
 *
 * Times are ns since 1970 on the host's clock. One process at a time writes; a kernel is in the
 * ring when it is launched, so before it begins.
 */
#ifndef VGPU_TIMELINE_H
#define VGPU_TIMELINE_H

#include <stdbool.h>
#include <stdint.h>

/** Percent; as pm_double.c numbers them. */
enum { VGPU_SM, VGPU_OCCUPANCY, VGPU_DRAM, VGPU_FP32, VGPU_LEVELS };
enum { VGPU_UUID = 64, VGPU_KERNELS = 65536 };

/** One kernel. Its levels stay as they are until its tail, `tail` of its length, in which they run
 * out evenly. */
typedef struct vgpu_kernel {
    int64_t begin, end;
    float levels[VGPU_LEVELS];
    float tail;
} vgpu_kernel;

typedef struct vgpu_timeline vgpu_timeline;

/** Opens the file, `uuid` given: makes it anew where it is another GPU's or none. NULL: it is not
 * there or cannot be made. It stays open. */
vgpu_timeline *vgpu_timeline_open(const char *path, const char *uuid);

/** The GPU's. */
const char *vgpu_timeline_uuid(const vgpu_timeline *timeline);

void vgpu_timeline_add(vgpu_timeline *timeline, const vgpu_kernel *kernel);

/** Its monitors begin to be sampled; and how often they have. */
void vgpu_timeline_sample(vgpu_timeline *timeline);
uint32_t vgpu_timeline_sampled(const vgpu_timeline *timeline);

/**
 * Means over a time that has passed, in percent; kernels side by side add up, to 100 at most.
 * `cursor` remembers where to look next: 0 at first, and `from` does not go back. No kernel is
 * longer than a quarter of a second.
 */
void vgpu_timeline_mean(const vgpu_timeline *timeline, uint64_t *cursor, int64_t from, int64_t to,
                        double means[VGPU_LEVELS]);

/** The SMs' clock while nothing runs, and by which share of it a kernel slows it down that keeps
 * them active all the time. */
#define VGPU_GHZ 1.98
#define VGPU_SLOWER 0.15

/** The same as the monitors tell them: what is of the SMs as shares of their cycles, of which a
 * time has more where they go faster. `ret_ghz`: their clock, its mean over the time. */
void vgpu_timeline_monitored(const vgpu_timeline *timeline, uint64_t *cursor, int64_t from,
                             int64_t to, double means[VGPU_LEVELS], double *ret_ghz);

/** Percent of a time that has just passed in which a kernel ran; kernels side by side count twice,
 * to 100 at most. */
double vgpu_timeline_busy(const vgpu_timeline *timeline, int64_t from, int64_t to);

#endif
