/* Files read and written whole. */
#ifndef PP_COMMON_FILE_H
#define PP_COMMON_FILE_H

#include "common/error.h"

#include <stddef.h>

/**
 * The file's text, NUL-terminated and without the white space at its end; the caller frees it. Its
 * length goes to *ret_n (may be NULL). NULL with err, which names the file, when it cannot be read
 * or has more than `max` bytes (PP_ERR_TOO_LARGE).
 */
char *pp_file_read(const char *path, size_t max, size_t *ret_n, pp_error *err);

/** Writes all `n` bytes, in as many calls as that takes; -1 with errno where some did not go in. */
int pp_file_write(int fd, const char *data, size_t n);

#endif
