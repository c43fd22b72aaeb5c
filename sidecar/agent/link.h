/*
 * The WebSocket connection to the operator: one libwebsockets client on a libuv loop, over TLS, the
 * operator's certificate checked against the CA file and the endpoint's host name. It connects once
 * per call; when to try again is the caller's to say (retry.h).
 *
 * The host's name is resolved anew for each attempt, beside the loop. Where it is not, or not in
 * time, or does not lead to the operator, the settings' addresses do (route.h); the certificate is
 * checked against the name all the same.
 *
 * The token and CA files are read anew at every attempt: both are rotated while the agent runs.
 */
#ifndef PP_AGENT_LINK_H
#define PP_AGENT_LINK_H

#include "common/error.h"
#include "common/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

typedef struct pp_link pp_link;

/** Called by the link; none of them may free it. */
typedef struct pp_link_events {
    void (*opened)(void *user);
    /** A whole text message. */
    void (*message)(void *user, const char *text, size_t n);
    /** The next message to send, borrowed until the call returns; false: nothing now. */
    bool (*next)(void *user, const char **ret_text, size_t *ret_n);
    /**
     * The attempt failed, or the connection ended. status: the HTTP answer's, or 0; retry_after:
     * seconds, as the server asked, or -1.
     */
    void (*closed)(void *user, int status, int retry_after, const char *why);
} pp_link_events;

typedef struct pp_link_config {
    uv_loop_t *loop;
    const char *endpoint;        /**< wss://host[:port]/path; copied, as are the addresses */
    const pp_strings *addresses; /**< literal IPs behind that host's name */
    const char *token_path;
    const char *ca_path;
    const pp_link_events *events;
    void *user;
} pp_link_config;

int pp_link_new(const pp_link_config *config, pp_link **ret, pp_error *err);

/** Begins to connect; `opened` or `closed` follows, the latter perhaps before this returns. */
void pp_link_connect(pp_link *link);

/** By how many seconds this node's clock is ahead at least, negative: behind, where the operator's
 * certificate was not valid by it at the last attempt; 0: that was not the reason. */
int64_t pp_link_clock_ahead(const pp_link *link);

/** Whether messages can be sent. */
bool pp_link_is_open(const pp_link *link);

/** There is something to send: `next` will be asked. */
void pp_link_wake(pp_link *link);

/** Takes everything off the loop; run the loop until it is empty, then call pp_link_free. */
void pp_link_stop(pp_link *link);
void pp_link_free(pp_link *link);

#endif
