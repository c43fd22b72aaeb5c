#include "operator/kube/framer.h"

#include <string.h>

void pp_framer_init(pp_framer *framer, size_t max_line)
{
    pp_buf_init(&framer->tail, max_line);
}

void pp_framer_done(pp_framer *framer)
{
    pp_buf_done(&framer->tail);
}

void pp_framer_reset(pp_framer *framer)
{
    pp_buf_reset(&framer->tail);
}

static int emit(const char *line, size_t n, pp_framer_fn fn, void *user, pp_error *err)
{
    if (n > 0 && line[n - 1] == '\r')
        n--;
    return n > 0 ? fn(user, line, n, err) : 0;
}

/** A line that ends at `end` within this piece; the tail, if any, is its beginning. */
static int end_line(pp_framer *framer, const char *data, size_t n, pp_framer_fn fn, void *user,
                    pp_error *err)
{
    if (framer->tail.len == 0) {
        if (n > framer->tail.max)
            return pp_error_set(err, PP_ERR_TOO_LARGE, "a line of more than %zu bytes",
                                framer->tail.max);
        return emit(data, n, fn, user, err); /* no copy: most lines come whole */
    }
    if (pp_buf_append(&framer->tail, data, n, err) < 0)
        return -1;
    int rc = emit(framer->tail.data, framer->tail.len, fn, user, err);
    pp_buf_reset(&framer->tail);
    return rc;
}

int pp_framer_feed(pp_framer *framer, const char *data, size_t n, pp_framer_fn fn, void *user,
                   pp_error *err)
{
    while (n > 0) {
        const char *end = memchr(data, '\n', n);
        if (!end)
            return pp_buf_append(&framer->tail, data, n, err);
        size_t len = (size_t)(end - data);
        if (end_line(framer, data, len, fn, user, err) < 0)
            return -1;
        data += len + 1;
        n -= len + 1;
    }
    return 0;
}
