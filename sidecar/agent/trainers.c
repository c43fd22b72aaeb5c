#include "sidecar/agent/trainers.h"

#include "common/log.h"
#include "common/text.h"
#include "common/volume.h"
#include "sidecar/agent/sampler.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    BAD_MAX = 64, /* files that are no rings: remembered so as to be named once */
    UNNAMED_SECONDS = 60,
};

/*
 * What lies in the ring directory, in pages of the largest size that nodes have: a ring and a
 * sampler's file of each process; of one that is not told a page; and small files, which are
 * control.json and the records of the images' environments, each with the one that replaces it.
 */
#define IN_PAGES(bytes) (((bytes) + PAGE_MOST - 1) / PAGE_MOST * PAGE_MOST)
enum {
    PAGE_MOST = 64 << 10,
    SMALL_FILES = 8 << 20,
};
_Static_assert(PP_TRAINERS_MAX *(IN_PAGES(PP_RING_SIZE) + IN_PAGES(PP_SAMPLES_SIZE)) +
                       SMALL_FILES <=
                   (size_t)PP_VOLUME_RING << 20,
               "no pod is evicted for what the hook writes");

/* The first that one of several told, rather one that trains; "": none did. */
typedef struct refusal {
    char why[PP_RING_TYPE];
    bool trained; /* who told it has counted a step */
} refusal;

struct pp_trainers {
    char *directory;
    pp_process *processes[PP_TRAINERS_MAX];
    size_t count;
    char bad[BAD_MAX][NAME_MAX + 1];
    size_t bad_count;
    bool trained;
    bool seen;
    refusal gone; /* of processes that are gone */
    refusal told; /* of all */
};

pp_trainers *pp_trainers_new(const char *directory)
{
    pp_trainers *t = calloc(1, sizeof *t);
    if (t)
        t->directory = strdup(directory);
    if (t && !t->directory) {
        free(t);
        t = NULL;
    }
    return t;
}

void pp_trainers_free(pp_trainers *t)
{
    if (!t)
        return;
    while (t->count > 0)
        pp_process_free(t->processes[--t->count]);
    free(t->directory);
    free(t);
}

static bool is_known(const pp_trainers *t, const char *name)
{
    for (size_t i = 0; i < t->count; i++) {
        if (strcmp(pp_text_file_name(pp_process_path(t->processes[i])), name) == 0)
            return true;
    }
    for (size_t i = 0; i < t->bad_count; i++) {
        if (strcmp(t->bad[i], name) == 0)
            return true;
    }
    return false;
}

static void note_bad(pp_trainers *t, const char *name)
{
    if (t->bad_count == BAD_MAX)
        return;
    (void)snprintf(t->bad[t->bad_count++], sizeof t->bad[0], "%s", name);
    if (t->bad_count == BAD_MAX)
        pp_err(t->directory, "too many files that are no rings: none is looked at");
}

static void adopt(pp_trainers *t, const char *name)
{
    pp_error err = {0};
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/%s", t->directory, name);
    if (n < 0 || (size_t)n >= sizeof path || t->count == PP_TRAINERS_MAX || t->bad_count == BAD_MAX)
        return;
    if (pp_process_open(path, &t->processes[t->count], &err) < 0) {
        pp_warn(path, "this ring is left alone: %s", err.message);
        note_bad(t, name);
        return;
    }
    t->count++;
    t->seen = true;
    pp_info(path, "a process with torch is here");
}

/* A ring that was never named: whoever made it was killed meanwhile. It is locked from its first
 * moments on, until its process is gone. */
static void remove_unnamed(int directory, const char *name)
{
    struct stat st;
    if (fstatat(directory, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode) ||
        time(NULL) - st.st_mtim.tv_sec <= UNNAMED_SECONDS)
        return;
    const int fd = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    /* It is its user's alone until it is locked, and empty. */
    const bool left = fd < 0 ? st.st_size == 0 : flock(fd, LOCK_SH | LOCK_NB) == 0;
    if (left)
        (void)unlinkat(directory, name, 0);
    if (fd >= 0)
        (void)close(fd);
}

void pp_trainers_scan(pp_trainers *t)
{
    static const size_t suffix = sizeof PP_RING_SUFFIX - 1;
    DIR *directory = opendir(t->directory);
    if (!directory)
        return; /* comes with the first trainer, or the volume is gone with the pod */
    const struct dirent *entry;
    while ((entry = readdir(directory))) {
        size_t n = strlen(entry->d_name);
        if (n > suffix && strcmp(entry->d_name + n - suffix, PP_RING_SUFFIX) == 0 &&
            !is_known(t, entry->d_name))
            adopt(t, entry->d_name);
        else if (strncmp(entry->d_name, PP_RING_UNNAMED, sizeof PP_RING_UNNAMED - 1) == 0)
            remove_unnamed(dirfd(directory), entry->d_name);
    }
    (void)closedir(directory);
}

/* A sampler that was killed with its container leaves its file. */
static void remove_samples(const char *ring)
{
    char path[PATH_MAX];
    for (int device = -1; device < PP_RING_DEVICES; device++)
        if (pp_sampler_path(ring, device, path, sizeof path))
            (void)unlink(path);
}

static void keep_refusal(refusal *r, const pp_process *p)
{
    const char *why = pp_process_refusal(p);
    const bool trained = pp_process_steps(p) > 0;
    if (!why[0])
        return;
    if (!r->why[0] || (trained && !r->trained))
        (void)snprintf(r->why, sizeof r->why, "%s", why);
    r->trained = r->trained || trained;
}

static void forget(pp_trainers *t, size_t i, bool damaged)
{
    pp_process *p = t->processes[i];
    const char *path = pp_process_path(p);
    pp_info(path, "the process is %s, %" PRIu64 " captures were broken",
            damaged ? "not to be trusted" : "gone", pp_process_broken(p));
    if (damaged || unlink(path) < 0)
        note_bad(t, pp_text_file_name(path));
    remove_samples(path);
    keep_refusal(&t->gone, p);
    pp_process_free(p);
    t->processes[i] = t->processes[--t->count];
}

/* One that stands aside for now takes it back where it is profiled after all. */
static void note_refusals(pp_trainers *t)
{
    t->told = t->gone;
    for (size_t i = 0; i < t->count; i++)
        keep_refusal(&t->told, t->processes[i]);
}

void pp_trainers_poll(pp_trainers *t, pp_agent_pod *pod, int64_t now, int64_t offset)
{
    for (size_t i = 0; i < t->count; i++)
        pp_process_keep_number(t->processes[i], pod);
    for (size_t i = t->count; i-- > 0;) {
        pp_error err = {0};
        int rc = pp_process_poll(t->processes[i], pod, now, offset, &err);
        t->trained = t->trained || pp_process_steps(t->processes[i]) > 0;
        if (rc < 0)
            pp_warn(pp_process_path(t->processes[i]), "%s", err.message);
        if (rc != 0)
            forget(t, i, rc < 0);
    }
    note_refusals(t);
}

void pp_trainers_cut(pp_trainers *t, pp_agent_pod *pod)
{
    for (size_t i = 0; i < t->count; i++)
        pp_process_finish(t->processes[i], pod);
}

void pp_trainers_finish(pp_trainers *t, pp_agent_pod *pod, int64_t now, int64_t offset)
{
    pp_trainers_scan(t);
    pp_trainers_poll(t, pod, now, offset);
    while (t->count > 0) {
        pp_process *p = t->processes[--t->count];
        pp_process_finish(p, pod);
        pp_process_free(p);
    }
}

size_t pp_trainers_count(const pp_trainers *t)
{
    return t->count;
}

bool pp_trainers_seen(const pp_trainers *t)
{
    return t->seen;
}

bool pp_trainers_trained(const pp_trainers *t)
{
    return t->trained;
}

const char *pp_trainers_refusal(const pp_trainers *t)
{
    /* Beside one that trains a process that does not is its helper. */
    return t->trained && !t->told.trained ? "" : t->told.why;
}
