#include "operator/results/answers.h"

#include <stdlib.h>
#include <string.h>
#include <uthash.h>

enum { SHARE = 4 }; /* of all bytes, that one answer may have */

typedef struct kept {
    pp_answer *answer;
    UT_hash_handle hh;
    size_t asked_len;
    char asked[];
} kept;

struct pp_answers {
    size_t max_bytes, bytes;
    kept *by_request; /* in the order in which they were asked for last */
};

pp_answers *pp_answers_new(size_t max_bytes)
{
    pp_answers *all = calloc(1, sizeof *all);
    if (all)
        all->max_bytes = max_bytes;
    return all;
}

static void forget(pp_answers *all, kept *one)
{
    HASH_DEL(all->by_request, one);
    all->bytes -= one->answer->len + one->asked_len;
    pp_answer_release(one->answer);
    free(one);
}

void pp_answers_free(pp_answers *all)
{
    while (all && all->by_request)
        forget(all, all->by_request);
    free(all);
}

static kept *find(pp_answers *all, const pp_buf *asked)
{
    kept *one = NULL;
    HASH_FIND(hh, all->by_request, asked->data, asked->len, one);
    return one;
}

pp_answer *pp_answers_find(pp_answers *all, const pp_buf *asked)
{
    kept *one = find(all, asked);
    if (!one)
        return NULL;
    HASH_DEL(all->by_request, one);
    HASH_ADD_KEYPTR(hh, all->by_request, one->asked, one->asked_len, one);
    return pp_answer_hold(one->answer);
}

/* Without memory it is not kept, and answered all the same. */
static void keep(pp_answers *all, const pp_buf *asked, pp_answer *answer)
{
    const size_t bytes = answer->len + asked->len;
    kept *one = find(all, asked);
    if (one)
        forget(all, one);
    if (!*answer->version || bytes > all->max_bytes / SHARE ||
        !(one = calloc(1, sizeof *one + asked->len)))
        return;
    while (all->by_request && all->bytes + bytes > all->max_bytes)
        forget(all, all->by_request);
    one->answer = pp_answer_hold(answer);
    one->asked_len = asked->len;
    memcpy(one->asked, asked->data, asked->len);
    HASH_ADD_KEYPTR(hh, all->by_request, one->asked, one->asked_len, one);
    all->bytes += bytes;
}

pp_answer *pp_answers_put(pp_answers *all, const pp_buf *asked, const char *version, char *body,
                          size_t len)
{
    pp_answer *answer = body ? calloc(1, sizeof *answer) : NULL;
    if (!answer) {
        free(body);
        return NULL;
    }
    char *fitting = realloc(body, len + 1); /* a buffer that has grown may be twice as large */
    body = fitting ? fitting : body;
    *answer = (pp_answer){.body = body, .len = len, .holders = 1};
    pp_copy_cut(answer->version, sizeof answer->version, version);
    keep(all, asked, answer);
    return answer;
}

pp_answer *pp_answer_hold(pp_answer *answer)
{
    answer->holders++;
    return answer;
}

void pp_answer_release(void *held)
{
    pp_answer *answer = held;
    if (!answer || --answer->holders > 0)
        return;
    free(answer->body);
    free(answer);
}
