/*
 * The HTTP server for foreign hooks, on the pod's loopback: POST /v1/events, and GET /openapi.yaml,
 * which says all of it (docs/openapi/events.yaml). libwebsockets on a libuv loop.
 */
#ifndef PP_AGENT_EVENTS_SERVER_H
#define PP_AGENT_EVENTS_SERVER_H

#include "sidecar/agent/events.h"

#include <uv.h>

typedef struct pp_events_server pp_events_server;

/** Answers one post. */
typedef void (*pp_events_server_post)(void *user, const char *text, size_t n,
                                      pp_events_answer *ret);

/** Listens on 127.0.0.1. Fails with PP_ERR_IO where the port is taken. */
int pp_events_server_new(uv_loop_t *loop, int port, pp_events_server_post post, void *user,
                         pp_events_server **ret, pp_error *err);

/** Takes everything off the loop; run the loop until it is empty, then call pp_events_server_free.
 * NULL is allowed, in both. */
void pp_events_server_stop(pp_events_server *server);
void pp_events_server_free(pp_events_server *server);

#endif
