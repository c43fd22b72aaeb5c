#include "operator/answers.h"

#include "common/buf.h"

#include <stdlib.h>
#include <string.h>
#include <uthash.h>

enum { SHARE = 4 }; /* of all bytes, that one answer may have */

typedef struct kept {
    uint64_t asked;
    pp_answer *answer;
    UT_hash_handle hh;
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
    all->bytes -= one->answer->len;
    pp_answer_release(one->answer);
    free(one);
}

void pp_answers_free(pp_answers *all)
{
    while (all && all->by_request)
        forget(all, all->by_request);
    free(all);
}

static kept *find(pp_answers *all, uint64_t asked)
{
    kept *one = NULL;
    HASH_FIND(hh, all->by_request, &asked, sizeof asked, one);
    return one;
}

pp_answer *pp_answers_find(pp_answers *all, uint64_t asked)
{
    kept *one = find(all, asked);
    if (!one)
        return NULL;
    HASH_DEL(all->by_request, one);
    HASH_ADD(hh, all->by_request, asked, sizeof one->asked, one);
    return pp_answer_hold(one->answer);
}

/* Without memory it is not kept, and answered all the same. */
static void keep(pp_answers *all, uint64_t asked, pp_answer *answer)
{
    kept *one = find(all, asked);
    if (one)
        forget(all, one);
    if (!*answer->version || answer->len > all->max_bytes / SHARE ||
        !(one = calloc(1, sizeof *one)))
        return;
    while (all->by_request && all->bytes + answer->len > all->max_bytes)
        forget(all, all->by_request);
    *one = (kept){.asked = asked, .answer = pp_answer_hold(answer)};
    HASH_ADD(hh, all->by_request, asked, sizeof one->asked, one);
    all->bytes += answer->len;
}

pp_answer *pp_answers_put(pp_answers *all, uint64_t asked, const char *version, char *body,
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
