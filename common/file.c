#include "common/file.h"

#include "common/cleanup.h"

#include <ctype.h>
#include <errno.h>
#include <unistd.h>

char *pp_file_read(const char *path, size_t max, size_t *ret_n, pp_error *err)
{
    PP_CLEANUP_FILE FILE *file = fopen(path, "re");
    if (!file) {
        (void)pp_error_errno(err, "cannot open %s", path);
        return NULL;
    }
    PP_CLEANUP_FREE char *text = malloc(max + 1);
    if (!text) {
        (void)pp_error_nomem(err);
        return NULL;
    }
    size_t n = fread(text, 1, max + 1, file);
    if (ferror(file)) {
        (void)pp_error_errno(err, "cannot read %s", path);
        return NULL;
    }
    if (n > max) {
        (void)pp_error_set(err, PP_ERR_TOO_LARGE, "%s has more than %zu bytes", path, max);
        return NULL;
    }
    while (n > 0 && isspace((unsigned char)text[n - 1]))
        n--;
    text[n] = '\0';
    char *fitting = realloc(text, n + 1);
    if (fitting)
        text = fitting;
    if (ret_n)
        *ret_n = n;
    return PP_TAKE(text);
}

int pp_file_write(int fd, const char *data, size_t n)
{
    while (n > 0) {
        ssize_t done = write(fd, data, n);
        if (done == 0)
            errno = ENOSPC;
        if (done == 0 || (done < 0 && errno != EINTR))
            return -1;
        if (done > 0) {
            data += done;
            n -= (size_t)done;
        }
    }
    return 0;
}
