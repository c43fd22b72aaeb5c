/* What the tests against a real Prometheus (in PATH) share. */
#ifndef PP_OPERATOR_PROMETHEUS_TESTS_FIXTURE_H
#define PP_OPERATOR_PROMETHEUS_TESTS_FIXTURE_H

#include "common/tests/cmocka_all.h"
#include "operator/prometheus/prometheus.h"

/** A socket that listens on a free port of the loopback. */
int fixture_listen(int *ret_port);

/** Starts Prometheus on the port with prometheus.yml, data/ and log of the folder, and with one
 *  more option where it is not NULL. It dies with its parent. */
pid_t fixture_start_prometheus(const char *dir, int port, const char *option);

/** Removes the folder and what is in it. */
void fixture_remove(const char *dir);

/** Frees the client and what it stands on, and ends both programs and the loop. */
void fixture_stop(uv_loop_t *loop, pp_prometheus *client, pp_http_client *http, pid_t one,
                  pid_t other);

/** The last answer, copied, or why there was none. */
typedef struct fixture_reply {
    bool answered;
    pp_prometheus_answer answer;
    pp_error error;
} fixture_reply;

/** Asks and waits; what the reply held before is freed. */
void fixture_ask(uv_loop_t *loop, pp_prometheus *client, const char *text, int64_t time_ns,
                 fixture_reply *reply);

#endif
