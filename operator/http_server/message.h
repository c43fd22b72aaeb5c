/*
 * One whole message of an agent, and what it says. Does no I/O and knows no server, so that it can
 * be decoded in any thread (decoder.h).
 */
#ifndef PP_OPERATOR_HTTP_SERVER_MESSAGE_H
#define PP_OPERATOR_HTTP_SERVER_MESSAGE_H

#include "common/buf.h"
#include "common/error.h"
#include "common/wire.h"
#include "operator/http_server/server.h"

typedef enum message_kind {
    MESSAGE_MALFORMED, /**< none of ours; `error` says why */
    MESSAGE_REFUSED,   /**< a batch that is wrong; `error` says why, `seq` which, -1: not known */
    MESSAGE_BATCH,
    MESSAGE_BYE,
    MESSAGE_TIME,
    MESSAGE_HOOK,
} message_kind;

typedef struct agent_message {
    struct agent_message *next;
    pp_http_id from;       /**< the connection that brought it */
    struct pod_share *pod; /**< its pod; borrowed */
    pp_buf text;           /**< until it is decoded */
    size_t bytes;          /**< of the text */
    bool decoded;
    message_kind kind;
    int64_t seq;
    pp_wire_batch *batch; /**< owned, until somebody takes it and sets this to NULL */
    pp_wire_bye bye;
    pp_wire_time time;
    pp_wire_hook hook;
    pp_error error;
} agent_message;

/** Takes the text over; NULL without memory, and the text is freed. */
agent_message *agent_message_new(pp_buf *text);
void agent_message_free(agent_message *m);

/** Reads what it says; a second call does nothing. */
void agent_message_decode(agent_message *m);

#endif
