#include "sidecar/agent/presence.h"

#include "common/cleanup.h"
#include "sidecar/ring.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const libcs[] = {"glibc", "musl", "none"};
enum { LIBCS = sizeof libcs / sizeof libcs[0] };

/* The record's first line, "libc glibc"; -1: it names none, or is no record. */
static int libc_of(int directory, const char *name)
{
    char text[32] = "", line[32];
    struct stat about;
    PP_CLEANUP_FD int fd = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &about) < 0 || !S_ISREG(about.st_mode) ||
        read(fd, text, sizeof text - 1) <= 0)
        return -1;
    for (int i = 0; i < LIBCS; i++) {
        const int n = snprintf(line, sizeof line, "libc %s\n", libcs[i]);
        if (strncmp(text, line, (size_t)n) == 0)
            return i;
    }
    return -1;
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static bool ends(const char *text, const char *with)
{
    const size_t n = strlen(text), m = strlen(with);
    return n > m && strcmp(text + n - m, with) == 0;
}

/* Also where that cannot be known: the file is another user's alone. */
static bool is_held(int directory)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    PP_CLEANUP_FD int fd =
        openat(directory, PP_RING_LOADED, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    return fd < 0 || fcntl(fd, F_OFD_GETLK, &lock) < 0 || lock.l_type != F_UNLCK;
}

static bool is_there(pp_presence *p, int directory, int64_t now_ns)
{
    if (!p->loaded || is_held(directory))
        *p = (pp_presence){true, now_ns};
    return now_ns - p->last_ns < PP_PRESENCE_NS;
}

static bool has_been_marked(int directory)
{
    return faccessat(directory, PP_RING_TORCH, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static void leave_mark(int directory)
{
    PP_CLEANUP_FD int fd = openat(directory, PP_RING_TORCH,
                                  O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    (void)fd; /* where there is no room the next agent knows less */
}

void pp_presence_look(pp_presence *p, const char *path, int64_t now_ns, pp_wire_hook *ret)
{
    DIR *directory = opendir(path);
    const struct dirent *entry;
    int libc = -1, records = 0, alike = 0;
    ret->loaded = false;
    ret->libc[0] = '\0';
    while (directory && (entry = readdir(directory))) {
        const char *name = entry->d_name;
        if (ends(name, PP_RING_SUFFIX) ||
            (strcmp(name, PP_RING_LOADED) == 0 && is_there(p, dirfd(directory), now_ns)))
            ret->loaded = true;
        if (!begins(name, PP_RING_RECORD) || strchr(name, '.'))
            continue; /* one with a dot is still being written */
        const int own = libc_of(dirfd(directory), name);
        libc = records++ == 0 ? own : libc;
        alike += own == libc;
    }
    if (directory && has_been_marked(dirfd(directory)))
        ret->torch = true;
    else if (directory && ret->torch)
        leave_mark(dirfd(directory));
    if (directory)
        (void)closedir(directory);
    ret->loaded = ret->loaded || ret->torch;
    if (libc >= 0 && alike == records)
        (void)snprintf(ret->libc, sizeof ret->libc, "%s", libcs[libc]);
}
