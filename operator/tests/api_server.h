/* A small API server on the test's own loop, and what of an operator speaks to it. */
#ifndef PP_OPERATOR_TESTS_API_SERVER_H
#define PP_OPERATOR_TESTS_API_SERVER_H

#include "operator/state/state.h"

#include <jansson.h>

enum { API_REQUESTS = 8192, API_OBJECTS = 8 };

/** A request, as it came in. */
typedef struct api_request {
    char line[256];
    char body[2048];
} api_request;

typedef struct api_server {
    uv_loop_t loop;
    uv_tcp_t listener;
    uv_timer_t wake; /* so that a turn of the loop ends */
    struct api_peer *peers;
    api_request requests[API_REQUESTS];
    int count;
    struct {
        const char *path; /* what is asked of it gives `text`; GET of others 404, the rest {} */
        const char *text;
    } objects[API_OBJECTS];
    const char *events; /* each watch is given these lines first; NULL: none */
    pp_config config;
    pp_operator op; /* leads, with the two above and nothing that runs */
} api_server;

/** For cmocka: *state is an api_server. */
int api_server_setup(void **state);
/** Ends op.server, too, where a test set one. */
int api_server_teardown(void **state);

/** Turns the loop until done(user) or for a minute; whether it was. */
bool api_server_run(api_server *api, bool (*done)(void *user), void *user);
/** The same for so many ns, whatever happens. */
void api_server_run_for(api_server *api, int64_t ns);

/** The first request whose line begins so; NULL: none has come. */
const api_request *api_server_find(const api_server *api, const char *begin);
/** How many have. */
int api_server_times(const api_server *api, const char *begin);

#endif
