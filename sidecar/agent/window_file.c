#include "sidecar/agent/window_file.h"

#include "common/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TIME_MAX (INT64_MAX / 4)
#define PERIOD_MAX 1000000000              /* ns */
#define MAGIC UINT64_C(0x3157444e57505000) /* "\0PPWNDW1" */

typedef struct header {
    uint64_t magic;
    uint32_t version, kernel_size, sample_size, clock_size;
    int64_t period, sampled;
    uint64_t kernels, copies, samples;
    pp_sampling_clock
        clock; /* its only bool is beside it: a byte that a file has may be anything */
    uint64_t stamped;
} header;

static bool is_window(const char *name)
{
    const size_t n = strlen(name), suffix = strlen(PP_WINDOW_SUFFIX);
    return n > suffix && strcmp(name + n - suffix, PP_WINDOW_SUFFIX) == 0;
}

int pp_window_folder_clear(const char *folder, pp_error *err)
{
    DIR *open = opendir(folder);
    if (!open)
        return errno == ENOENT ? 0 : pp_error_errno(err, "reading %s", folder);
    for (const struct dirent *entry; (entry = readdir(open));)
        if (is_window(entry->d_name))
            (void)unlinkat(dirfd(open), entry->d_name, 0);
    (void)closedir(open);
    return 0;
}

static header header_of(const pp_sampling_input *in, const pp_sampling_clock *clock)
{
    return (header){.magic = MAGIC,
                    .version = PP_WINDOW_VERSION,
                    .kernel_size = sizeof *in->kernels,
                    .sample_size = sizeof *in->samples,
                    .clock_size = sizeof *clock,
                    .period = in->period,
                    .sampled = in->sampled,
                    .kernels = in->n_kernels,
                    .copies = in->n_copies,
                    .samples = in->n_samples,
                    .clock = *clock,
                    .stamped = clock->stamped};
}

static bool put(FILE *file, const void *data, size_t size, size_t n)
{
    return n == 0 || fwrite(data, size, n, file) == n;
}

int pp_window_file_write(const char *folder, const char *name, uint64_t number,
                         const pp_sampling *window, const pp_sampling_clock *clock, pp_error *err)
{
    const pp_sampling_input in = pp_sampling_get_input(window);
    const header h = header_of(&in, clock);
    char path[PATH_MAX];
    const int n =
        snprintf(path, sizeof path, "%s/%s-%04" PRIu64 PP_WINDOW_SUFFIX, folder, name, number);
    if (n < 0 || (size_t)n >= sizeof path)
        return pp_error_set(err, PP_ERR_INVALID, "too long a name below %s", folder);
    PP_CLEANUP_FILE FILE *file = fopen(path, "we");
    if (!file)
        return pp_error_errno(err, "opening %s", path);
    if (!put(file, &h, sizeof h, 1) || !put(file, in.kernels, sizeof *in.kernels, in.n_kernels) ||
        !put(file, in.copies, sizeof *in.copies, in.n_copies) ||
        !put(file, in.samples, sizeof *in.samples, in.n_samples) || fflush(file) != 0) {
        (void)pp_error_errno(err, "writing %s", path);
        (void)unlink(path); /* a part of it is of no use */
        return -1;
    }
    return 0;
}

static bool is_time(int64_t ns)
{
    return ns > -TIME_MAX && ns < TIME_MAX;
}

static int check(const header *h, const char *path, pp_error *err)
{
    const pp_sampling_input none = {0};
    const pp_sampling_clock any = {0};
    const header own = header_of(&none, &any);
    if (h->magic != own.magic || h->version != own.version || h->kernel_size != own.kernel_size ||
        h->sample_size != own.sample_size || h->clock_size != own.clock_size)
        return pp_error_set(err, PP_ERR_INVALID, "%s is no window of version %d", path,
                            PP_WINDOW_VERSION);
    if (h->period < 1 || h->period > PERIOD_MAX || h->sampled < 1 || h->sampled > PERIOD_MAX ||
        !is_time(h->clock.lag) || !is_time(h->clock.likely) || !is_time(h->clock.error))
        return pp_error_set(err, PP_ERR_INVALID, "%s has a period or a lag that cannot be", path);
    return 0;
}

static int cut_short(const char *path, pp_error *err)
{
    return pp_error_set(err, PP_ERR_INVALID, "%s was cut short", path);
}

/* Kernels, then copies: each says which it is. */
static int read_kernels(FILE *file, uint64_t n, const char *path, pp_sampling *to, pp_error *err)
{
    for (uint64_t i = 0; i < n; i++) {
        pp_sampling_kernel kernel;
        if (fread(&kernel, sizeof kernel, 1, file) != 1)
            return cut_short(path, err);
        if (pp_sampling_add_kernel(to, &kernel, err) < 0)
            return -1;
    }
    return 0;
}

static int read_samples(FILE *file, uint64_t n, const char *path, pp_sampling *to, pp_error *err)
{
    for (uint64_t i = 0; i < n; i++) {
        pp_sampling_sample sample;
        if (fread(&sample, sizeof sample, 1, file) != 1)
            return cut_short(path, err);
        if (pp_sampling_add_sample(to, &sample, err) < 0)
            return -1;
    }
    return 0;
}

int pp_window_file_read(const char *path, pp_sampling **ret, pp_sampling_clock *ret_clock,
                        pp_error *err)
{
    header h;
    PP_CLEANUP_FILE FILE *file = fopen(path, "re");
    if (!file)
        return pp_error_errno(err, "opening %s", path);
    if (fread(&h, sizeof h, 1, file) != 1)
        return cut_short(path, err);
    h.clock.stamped = h.stamped != 0;
    if (check(&h, path, err) < 0)
        return -1;
    pp_sampling *window = pp_sampling_new(h.period);
    if (!window)
        return pp_error_nomem(err);
    pp_sampling_set_sampled(window, h.sampled);
    if (read_kernels(file, h.kernels, path, window, err) < 0 ||
        read_kernels(file, h.copies, path, window, err) < 0 ||
        read_samples(file, h.samples, path, window, err) < 0) {
        pp_sampling_free(window);
        return -1;
    }
    *ret = window;
    *ret_clock = h.clock;
    return 0;
}
