#include "e2e/gpu/driver/timeline.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC UINT64_C(0x656d697475706776) /* "vgputime" */

struct vgpu_timeline {
    uint64_t magic;
    char uuid[VGPU_UUID];
    _Atomic uint64_t head;    /* kernels written */
    _Atomic uint32_t sampled; /* times that its monitors began to be sampled */
    vgpu_kernel kernels[VGPU_KERNELS];
};

static vgpu_timeline *map(int fd)
{
    struct stat st;
    void *at = MAP_FAILED;
    if (fstat(fd, &st) == 0 && (size_t)st.st_size == sizeof(vgpu_timeline))
        at = mmap(NULL, sizeof(vgpu_timeline), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return at == MAP_FAILED ? NULL : at;
}

static vgpu_timeline *make(const char *path, const char *uuid)
{
    char fresh[4096];
    (void)snprintf(fresh, sizeof fresh, "%s.%d", path, (int)getpid());
    int fd = open(fresh, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    vgpu_timeline *t = fd >= 0 && ftruncate(fd, sizeof(vgpu_timeline)) == 0 ? map(fd) : NULL;
    if (fd >= 0)
        (void)close(fd);
    if (!t)
        return NULL;
    (void)snprintf(t->uuid, sizeof t->uuid, "%s", uuid);
    t->magic = MAGIC;
    (void)rename(fresh, path);
    return t;
}

vgpu_timeline *vgpu_timeline_open(const char *path, const char *uuid)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    vgpu_timeline *t = fd >= 0 ? map(fd) : NULL;
    if (fd >= 0)
        (void)close(fd);
    if (t && t->magic == MAGIC && (!uuid || strcmp(t->uuid, uuid) == 0))
        return t;
    if (t)
        (void)munmap(t, sizeof *t);
    return uuid ? make(path, uuid) : NULL;
}

const char *vgpu_timeline_uuid(const vgpu_timeline *t)
{
    return t->uuid;
}

void vgpu_timeline_add(vgpu_timeline *t, const vgpu_kernel *kernel)
{
    uint64_t head = atomic_load_explicit(&t->head, memory_order_relaxed);
    t->kernels[head % VGPU_KERNELS] = *kernel;
    atomic_store_explicit(&t->head, head + 1, memory_order_release);
}

void vgpu_timeline_sample(vgpu_timeline *t)
{
    (void)atomic_fetch_add(&t->sampled, 1);
}

uint32_t vgpu_timeline_sampled(const vgpu_timeline *t)
{
    return atomic_load(&t->sampled);
}

/* The part of a kernel's level that has been until `x` of its length. */
static double until(double x, double tail)
{
    if (x <= 1 - tail)
        return x;
    double y = x - (1 - tail);
    return 1 - tail + y - y * y / (2 * tail);
}

/* Of a time: sums of levels by ns, of the SMs' as they come in cycles too, and the ns that a clock
 * of full speed would be ahead. */
typedef struct sums {
    double levels[VGPU_LEVELS], of_cycles[VGPU_LEVELS], behind;
} sums;

static void add_kernel(const vgpu_kernel *k, int64_t from, int64_t to, sums *to_sums)
{
    const double length = (double)(k->end - k->begin);
    double first = (double)(from - k->begin) / length, last = (double)(to - k->begin) / length;
    first = first > 0 ? first : 0;
    last = last < 1 ? last : 1;
    if (!(first < last))
        return;
    const double part = (until(last, (double)k->tail) - until(first, (double)k->tail)) * length;
    const double slower = VGPU_SLOWER * (double)k->levels[VGPU_SM] / 100;
    for (int l = 0; l < VGPU_LEVELS; l++) {
        to_sums->levels[l] += (double)k->levels[l] * part;
        to_sums->of_cycles[l] += (double)k->levels[l] * part * (1 - slower);
    }
    to_sums->behind += slower * (last - first) * length;
}

/* Kernels of several streams are not in order of time: what is this long over is left behind. */
#define LONGEST INT64_C(250000000)

static sums sum_up(const vgpu_timeline *t, uint64_t *cursor, int64_t from, int64_t to)
{
    uint64_t head = atomic_load_explicit(&t->head, memory_order_acquire);
    sums all = {0};
    if (head > *cursor + VGPU_KERNELS / 2)
        *cursor = head - VGPU_KERNELS / 2;
    while (*cursor < head && t->kernels[*cursor % VGPU_KERNELS].end < from - LONGEST)
        ++*cursor;
    for (uint64_t i = *cursor; i < head; i++)
        add_kernel(&t->kernels[i % VGPU_KERNELS], from, to, &all);
    return all;
}

void vgpu_timeline_mean(const vgpu_timeline *t, uint64_t *cursor, int64_t from, int64_t to,
                        double means[VGPU_LEVELS])
{
    const sums all = sum_up(t, cursor, from, to);
    for (int l = 0; l < VGPU_LEVELS; l++) {
        double mean = all.levels[l] / (double)(to - from);
        means[l] = mean < 100 ? mean : 100;
    }
}

void vgpu_timeline_monitored(const vgpu_timeline *t, uint64_t *cursor, int64_t from, int64_t to,
                             double means[VGPU_LEVELS], double *ret_ghz)
{
    const sums all = sum_up(t, cursor, from, to);
    const double time = (double)(to - from);
    const double cycles = time - (all.behind < time / 2 ? all.behind : time / 2);
    for (int l = 0; l < VGPU_LEVELS; l++) {
        double mean = l == VGPU_DRAM ? all.levels[l] / time : all.of_cycles[l] / cycles;
        means[l] = mean < 100 ? mean : 100;
    }
    *ret_ghz = VGPU_GHZ * cycles / time;
}

double vgpu_timeline_busy(const vgpu_timeline *t, int64_t from, int64_t to)
{
    uint64_t head = atomic_load_explicit(&t->head, memory_order_acquire);
    int64_t sum = 0;
    for (uint64_t i = head; i > 0 && i + VGPU_KERNELS / 2 > head; i--) {
        const vgpu_kernel *k = &t->kernels[(i - 1) % VGPU_KERNELS];
        const int64_t begin = k->begin > from ? k->begin : from;
        const int64_t end = k->end < to ? k->end : to;
        if (k->end < from - LONGEST)
            break;
        sum += end > begin ? end - begin : 0;
    }
    double share = 100.0 * (double)sum / (double)(to - from);
    return share < 100 ? share : 100;
}
