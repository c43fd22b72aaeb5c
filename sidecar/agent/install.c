#include "sidecar/agent/install.h"

#include "common/cleanup.h"
#include "common/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

enum { DEPTH_MAX = 8, CHUNK = 64 << 10 };

static int join(char *out, const char *folder, const char *name, pp_error *err)
{
    int n = snprintf(out, PATH_MAX, "%s/%s", folder, name);
    if (n < 0 || n >= PATH_MAX)
        return pp_error_set(err, PP_ERR_TOO_LARGE, "a path below %s is too long", folder);
    return 0;
}

static int copy_file(const char *from, const char *to, mode_t mode, pp_error *err)
{
    PP_CLEANUP_FD int in = open(from, O_RDONLY | O_CLOEXEC);
    PP_CLEANUP_FD int out = in < 0 ? -1 : open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    PP_CLEANUP_FREE char *chunk = malloc(CHUNK);
    if (in < 0 || out < 0)
        return pp_error_errno(err, "copying %s to %s", from, to);
    if (!chunk)
        return pp_error_nomem(err);
    ssize_t n;
    while ((n = read(in, chunk, CHUNK)) > 0)
        if (pp_file_write(out, chunk, (size_t)n) < 0)
            return pp_error_errno(err, "writing %s", to);
    if (n < 0)
        return pp_error_errno(err, "reading %s", from);
    return fchmod(out, mode) < 0 ? pp_error_errno(err, "setting the mode of %s", to) : 0;
}

static int copy_tree(const char *from, const char *to, int depth, pp_error *err);

static int copy_entry(const char *from, const char *to, int depth, pp_error *err)
{
    struct stat st;
    if (stat(from, &st) < 0)
        return pp_error_errno(err, "looking at %s", from);
    if (S_ISDIR(st.st_mode))
        return copy_tree(from, to, depth + 1, err);
    mode_t mode = st.st_mode & S_IXUSR ? 0755 : 0644;
    return S_ISREG(st.st_mode) ? copy_file(from, to, mode, err) : 0;
}

static int copy_tree(const char *from, const char *to, int depth, pp_error *err)
{
    if (depth > DEPTH_MAX)
        return pp_error_set(err, PP_ERR_TOO_LARGE, "%s is nested too deeply", from);
    DIR *folder = opendir(from);
    if (!folder)
        return pp_error_errno(err, "opening %s", from);
    int rc = mkdir(to, 0755) < 0 || chmod(to, 0755) < 0 ? pp_error_errno(err, "making %s", to) : 0;
    const struct dirent *entry;
    while (rc == 0 && (entry = readdir(folder))) {
        char source[PATH_MAX], target[PATH_MAX];
        if (entry->d_name[0] == '.')
            continue;
        rc = join(source, from, entry->d_name, err);
        if (rc == 0)
            rc = join(target, to, entry->d_name, err);
        if (rc == 0)
            rc = copy_entry(source, target, depth, err);
    }
    (void)closedir(folder);
    return rc;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st;
    (void)flag;
    (void)ftw;
    return remove(path);
}

static void remove_tree(const char *path)
{
    (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Puts one entry of the copy into its place; a folder in the way is moved out first. */
static int place(const char *fresh, const char *final, const char *old, pp_error *err)
{
    if (rename(fresh, final) == 0)
        return 0;
    if (errno != ENOTEMPTY && errno != EEXIST)
        return pp_error_errno(err, "naming %s", final);
    remove_tree(old);
    if (rename(final, old) < 0 || rename(fresh, final) < 0)
        return pp_error_errno(err, "replacing %s", final);
    remove_tree(old);
    return 0;
}

/* `to` is a mount point in a pod and cannot be renamed: its entries are. */
static int place_all(const char *fresh, const char *to, pp_error *err)
{
    DIR *folder = opendir(fresh);
    if (!folder)
        return pp_error_errno(err, "opening %s", fresh);
    int rc = 0;
    const struct dirent *entry;
    while (rc == 0 && (entry = readdir(folder))) {
        char source[PATH_MAX], target[PATH_MAX], old[PATH_MAX];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (join(source, fresh, entry->d_name, err) < 0 ||
            join(target, to, entry->d_name, err) < 0 || join(old, to, ".old", err) < 0)
            rc = -1;
        else
            rc = place(source, target, old, err);
    }
    (void)closedir(folder);
    return rc;
}

/* In one piece; it may run while it is replaced. */
static int copy_program(const char *from, const char *to, pp_error *err)
{
    char fresh[PATH_MAX];
    int n = snprintf(fresh, sizeof fresh, "%s.new", to);
    if (n < 0 || n >= PATH_MAX)
        return pp_error_set(err, PP_ERR_TOO_LARGE, "%s is too long", to);
    if (unlink(fresh) < 0 && errno != ENOENT)
        return pp_error_errno(err, "removing %s", fresh);
    if (copy_file(from, fresh, 0755, err) < 0)
        return -1;
    return rename(fresh, to) < 0 ? pp_error_errno(err, "naming %s", to) : 0;
}

int pp_install_environment(const char *from, const char *to, pp_error *err)
{
    char source[PATH_MAX], target[PATH_MAX];
    struct utsname machine;
    if (uname(&machine) < 0)
        return pp_error_errno(err, "asking for the machine");
    int n =
        snprintf(source, sizeof source, "%s/python/precisionprobe_hook/%s/" PP_ENVIRONMENT_PROGRAM,
                 from, machine.machine);
    if (n < 0 || n >= PATH_MAX)
        return pp_error_set(err, PP_ERR_TOO_LARGE, "a path below %s is too long", from);
    if (mkdir(to, 0755) < 0 && errno != EEXIST)
        return pp_error_errno(err, "making %s", to);
    if (join(target, to, PP_ENVIRONMENT_PROGRAM, err) < 0)
        return -1;
    return copy_program(source, target, err);
}

int pp_install(const char *from, const char *to, pp_error *err)
{
    char fresh[PATH_MAX];
    if (mkdir(to, 0755) < 0 && errno != EEXIST)
        return pp_error_errno(err, "making %s", to);
    if (join(fresh, to, ".new", err) < 0)
        return -1;
    remove_tree(fresh);
    int rc = copy_tree(from, fresh, 0, err);
    if (rc == 0)
        rc = place_all(fresh, to, err);
    remove_tree(fresh);
    return rc;
}
