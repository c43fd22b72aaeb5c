/*
 * A real server on a loop of its own, in a thread of its own; the tests are its clients. Its
 * handlers are as simple as can be, and what they do depends on what they are sent:
 *   tokens   good*  granted (pod = the token), late* granted after 100 ms, bad* 401, nopod* 403,
 *            away* 503, mute* never answered
 *   reviews  pod name late: answered after 100 ms, mute: never, big: a patch of 2 MB
 *   results  /api/now: what was asked, /api/big: 5 MB, /api/mute: not answered; token bad*: 401;
 *   files    /files/a.txt: the alphabet, 100,000 bytes of it; /moved leads there
 * tokens are of one user that are the same up to a dash batches  acknowledged, but session
 * "foreign": refused, session "held": kept until released
 */
#ifndef PP_OPERATOR_HTTP_TESTS_FIXTURE_H
#define PP_OPERATOR_HTTP_TESTS_FIXTURE_H

#include "operator/http_server/certificates.h"
#include "operator/http_server/server.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct fixture {
    pthread_t thread;
    uv_loop_t loop;
    uv_async_t wake;
    pthread_mutex_t lock;
    pthread_cond_t done;
    void (*task)(struct fixture *f, void *argument);
    void *argument;
    pp_http_server *server;
    pp_metrics *metrics;
    pp_certificates certificates;
    pp_strings names;
    char *ca;
    int port; /* TLS */
    int plain_port;
    int loop_left;         /* what uv_loop_close said */
    atomic_int authorized; /* calls */
    atomic_int reviews;
    atomic_int asked; /* requests of the API */
    atomic_int given_up;
    atomic_int batches;
    atomic_int byes;
    atomic_int times;
    atomic_int hooks;
    atomic_int connected;
    atomic_int disconnected;
    atomic_bool closed; /* accepting says no */
    atomic_bool unready;
    int64_t last_duration; /* of the last batch's last interval */
    pp_http_id first;      /* connection */
    atomic_bool displace;  /* it goes for others */
    pp_wire_time last_time;
    pp_wire_hook last_hook;
    pp_http_identity last_identity;
    struct {
        pp_http_id connection;
        char instance[65];
        int64_t seq;
    } held[1024];
    size_t held_count;
    unsigned char file[100000];
} fixture;

/** The byte of /api/big that is there. */
char fixture_big(size_t at);

/** Starts a server with these options (loop, certificate, ports are filled in). */
void fixture_start(fixture *f, pp_http_options options);
/** Stops it, waits for its loop to end and frees everything. */
void fixture_stop(fixture *f);
/** Runs a function on the server's loop and waits for it. */
void fixture_run(fixture *f, void (*task)(fixture *f, void *argument), void *argument);
/** Acknowledges all held batches. */
void fixture_release(fixture *f);
/** Waits until the counter has at least that value; false after ten seconds. */
bool fixture_wait(atomic_int *counter, int value);

#endif
