/*
 * A thread that decodes large messages, so that a thousand agents that begin at once do not hold up
 * the loop, with health, the Lease and reviews on it; and so that their many small pieces, which
 * live for a moment, are not allocated between things that stay. Messages come out in the order in
 * which they went in.
 */
#ifndef PP_OPERATOR_HTTP_SERVER_DECODER_H
#define PP_OPERATOR_HTTP_SERVER_DECODER_H

#include "operator/http_server/message.h"

#include <uv.h>

typedef struct decoder decoder;

/** Starts the thread. `done` is called on the loop with each message, which is its own then. NULL
 * where there is no memory or no thread. */
decoder *decoder_new(uv_loop_t *loop, void (*done)(void *user, agent_message *m), void *user);

/** Takes the message over. One that is decoded keeps its place among the others. */
void decoder_submit(decoder *d, agent_message *m);

/** Waits for the thread, which ends after the message that it is at; what waits is freed, and
 * `done` is not called any more. The rest is freed from the loop. NULL is allowed. */
void decoder_stop(decoder *d);

#endif
