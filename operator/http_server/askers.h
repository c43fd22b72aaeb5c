/*
 * How many tokens may be asked about, by where they come from: plain bookkeeping, without sockets
 * or a clock. A question costs the API server a TokenReview, and anybody may bring a token.
 *
 * An address has so many questions under way, and so many refusals at once and per second; a token
 * that turns out to be good costs it nothing. An address with refusals that are not paid for yet is
 * a suspect, and all suspects together have half of the places: whoever comes with a good token
 * finds one among the rest.
 */
#ifndef PP_OPERATOR_HTTP_SERVER_ASKERS_H
#define PP_OPERATOR_HTTP_SERVER_ASKERS_H

#include "operator/http_server/visitors.h"

typedef struct asker_limits {
    size_t total;     /**< questions under way */
    size_t each;      /**< of these from one address */
    int64_t interval; /**< ns that pay for a refusal */
    int64_t burst;    /**< refusals of one address after a rest; at least 1 */
} asker_limits;

/** A question under way. */
typedef struct asking {
    visitor_address from;
    bool suspect;
} asking;

typedef struct askers askers;

/** NULL without memory. */
askers *askers_new(const asker_limits *limits);
/** Accepts NULL. */
void askers_free(askers *a);

/** Whether a question from there may be asked now (monotonic ns): then it is under way, and *ret is
 * for askers_answered. */
bool askers_ask(askers *a, const visitor_address *from, int64_t now, asking *ret);

/** It is not under way any more; refused: the token is none that may speak. */
void askers_answered(askers *a, const asking *question, bool refused);

/** Addresses that something is known of. */
size_t askers_count(const askers *a);

#endif
