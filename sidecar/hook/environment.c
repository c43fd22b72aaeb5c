/*
 * precisionprobe-environment FILE: writes down what the image of a training sets and no Pod shows.
 *
 * It runs once before the training, in the training's image: linked statically, so that it needs
 * nothing of that. Of the environment it takes PYTHONPATH alone, since the rest may hold secrets;
 * and it looks which libc the image has, since the hook's extension needs glibc. It exits with 0
 * whatever happens: a training without the record runs as one whose image sets nothing.
 *
 * The record: a line "libc glibc", "libc musl", "libc none" or "libc", then "PYTHONPATH " and the
 * value up to the end of the file; no second part where the image sets none.
 */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { VALUE_MAX = 64 << 10 }; /* bytes; longer than any that is meant */

static bool has_loader(const char *folder, const char *prefix)
{
    DIR *list = opendir(folder);
    const struct dirent *entry;
    bool found = false;
    while (list && !found && (entry = readdir(list)))
        found = strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
    if (list)
        (void)closedir(list);
    return found;
}

/* "" where the image has both, and it is the program that decides. */
static const char *libc_of(const char *root)
{
    static const char *const folders[] = {"lib", "lib64", "usr/lib", "usr/lib64"};
    bool glibc = false, musl = false;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        char path[PATH_MAX];
        int n = snprintf(path, sizeof path, "%s/%s", root, folders[i]);
        if (n < 0 || (size_t)n >= sizeof path)
            continue;
        glibc = glibc || has_loader(path, "ld-linux");
        musl = musl || has_loader(path, "ld-musl-");
    }
    if (glibc && musl)
        return "";
    return glibc ? " glibc" : musl ? " musl" : " none";
}

static bool put(int fd, const char *text)
{
    size_t n = strlen(text);
    while (n > 0) {
        ssize_t written = write(fd, text, n);
        if (written <= 0)
            return false;
        text += written;
        n -= (size_t)written;
    }
    return true;
}

static bool put_record(int fd, const char *libc, const char *value)
{
    if (!put(fd, "libc") || !put(fd, libc) || !put(fd, "\n"))
        return false;
    return !value || (put(fd, "PYTHONPATH ") && put(fd, value));
}

/* In one piece, since an init container may be run again; readable by whatever user trains. */
static int record(const char *file, const char *libc, const char *value)
{
    char fresh[PATH_MAX];
    int n = snprintf(fresh, sizeof fresh, "%s.%ld", file, (long)getpid());
    if (n < 0 || (size_t)n >= sizeof fresh)
        return -1;
    (void)unlink(fresh);
    int fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0)
        return -1;
    bool ok = put_record(fd, libc, value) && fchmod(fd, 0644) == 0;
    ok = close(fd) == 0 && ok && rename(fresh, file) == 0;
    if (!ok)
        (void)unlink(fresh);
    return ok ? 0 : -1;
}

int main(int argc, char **argv)
{
    const char *value = getenv("PYTHONPATH");
    const char *root = argc > 2 ? argv[2] : ""; /* of another tree, for tests */
    if (value && (!*value || strlen(value) > VALUE_MAX))
        value = NULL;
    if (argc < 2)
        (void)fputs("usage: precisionprobe-environment FILE [ROOT]\n", stderr);
    else if (record(argv[1], libc_of(root), value) < 0)
        perror(argv[1]);
    return 0;
}
