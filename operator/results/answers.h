/*
 * Answers of the API that are kept for whoever asks the same next: what was made of one version of
 * a session's results is what would be made again, as long as it has that version. So many readers
 * of one table cost about what one costs. An answer is shared: it may still be written to one
 * reader when it is no longer kept for others. Does no I/O, and knows nothing of who may read: ask
 * for an answer only once somebody may, and use it only where its version is what the database
 * tells now.
 */
#ifndef PP_OPERATOR_RESULTS_ANSWERS_H
#define PP_OPERATOR_RESULTS_ANSWERS_H

#include "common/buf.h"

#include <stddef.h>

typedef struct pp_answers pp_answers;

typedef struct pp_answer {
    char *body; /**< NUL-terminated; owned */
    size_t len; /**< bytes of it */
    char version[65];
    int holders;
} pp_answer;

/** Keeps so many bytes of bodies and requests at most. NULL without memory. */
pp_answers *pp_answers_new(size_t max_bytes);
/** Answers that somebody holds stay until they are released. NULL is allowed. */
void pp_answers_free(pp_answers *all);

/** What is kept for a request (`asked`: its text, which is no other's), to be released; NULL:
 * nothing. */
pp_answer *pp_answers_find(pp_answers *all, const pp_buf *asked);

/**
 * A new answer, to be released; body is taken in any case. It is kept in place of what was kept for
 * the request, unless it has no version ("") or is so large that it would push out most others;
 * those go whose request came longest ago. NULL without memory.
 */
pp_answer *pp_answers_put(pp_answers *all, const pp_buf *asked, const char *version, char *body,
                          size_t len);

/** A further holder; returns the answer. */
pp_answer *pp_answer_hold(pp_answer *answer);
/** Of type void *, as what is called when it is not needed any more. NULL is allowed. */
void pp_answer_release(void *answer);

#endif
