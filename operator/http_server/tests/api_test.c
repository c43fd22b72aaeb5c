/* Requests of the HTTP API at the server's edge: what reaches the handler, and what has a limit. */
#include "common/tests/cmocka_all.h"
#include "operator/http_server/tests/client.h"
#include "operator/http_server/tests/fixture.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define MS INT64_C(1000000)
#define TOKEN "Authorization: Bearer good\r\n"

static int start_with(void **state, pp_http_options options)
{
    fixture *f = malloc(sizeof *f);
    assert_non_null(f);
    options.max_connections = 8;
    fixture_start(f, options);
    *state = f;
    return 0;
}

static int start(void **state)
{
    return start_with(state, (pp_http_options){.api_timeout = 3600 * 1000 * MS});
}

static int start_hasty(void **state)
{
    return start_with(state, (pp_http_options){.api_timeout = 50 * MS});
}

/** Where a query may take longer than a request. */
static int start_patient(void **state)
{
    return start_with(
        state, (pp_http_options){.request_timeout = 2 * 1000 * MS, .api_timeout = 5 * 1000 * MS});
}

/** Where a refused token is never forgotten. */
static int start_wary(void **state)
{
    return start_with(state, (pp_http_options){.refusal_interval = 3600 * 1000 * MS});
}

static int stop(void **state)
{
    fixture *f = *state;
    fixture_stop(f);
    int left = f->loop_left;
    free(f);
    return left;
}

static client open_from(fixture *f, const char *address)
{
    client c;
    assert_true(client_open_from(&c, address, f->port, f->ca));
    return c;
}

static response get(client *c, const char *path, const char *headers)
{
    return client_request(c, "GET", path, headers, NULL, 0);
}

static void send_get(client *c, const char *path)
{
    char text[256];
    (void)snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: a\r\n" TOKEN "\r\n", path);
    assert_true(client_send(c, text, strlen(text)));
}

static void expect(client *c, const char *path, const char *headers, int status, const char *body)
{
    response r = get(c, path, headers);
    assert_int_equal(r.status, status);
    if (body)
        assert_string_equal(r.body, body);
    response_free(&r);
}

static void test_what_reaches_the_handler(void **state)
{
    fixture *f = *state;
    client c = open_from(f, "127.0.0.1");
    expect(&c, "/api/now", "", 200, "/api/now|-|");
    expect(&c, "/api/now?a=1&b=%26c&d", TOKEN "If-None-Match: W/\"x\", \"y\"\r\n", 200,
           "/api/now|good|W/\"x\", \"y\"|a=1|b=&c|d");
    expect(&c, "/api/now", "X-PrecisionProbe-Token:  other\r\n", 200, "/api/now|other|");
    expect(&c, "/api/now", "x-precisionprobe-token: a b\r\n", 200, "/api/now|-|");
    expect(&c, "/api/now", "Authorization: Basic good\r\n", 200, "/api/now|-|");
    response r = get(&c, "/api/now", TOKEN);
    assert_non_null(strstr(r.head, "ETag: \"1-x\"\r\n"));
    assert_non_null(strstr(r.head, "Cache-Control: private, no-cache\r\n"));
    response_free(&r);
    client_close(&c);
}

static void test_what_does_not_reach_it(void **state)
{
    fixture *f = *state;
    char path[256] = "/api/now?", part[] = "a&";
    client c = open_from(f, "127.0.0.1");
    for (int i = 0; i < 20; i++)
        (void)snprintf(path + strlen(path), sizeof path - strlen(path), "%s", part);
    expect(&c, path, TOKEN, 400, NULL);
    client_close(&c);
    c = open_from(f, "127.0.0.1");
    response r = client_request(&c, "POST", "/api/now", TOKEN, "body", 4);
    assert_int_equal(r.status, 413);
    response_free(&r);
    assert_true(client_is_cut(&c)); /* its body was not read */
    client_close(&c);
    c = open_from(f, "127.0.0.1");
    r = client_request(&c, "DELETE", "/api/now", TOKEN, NULL, 0);
    assert_int_equal(r.status, 405);
    response_free(&r);
    client_close(&c);
    client plain;
    assert_true(client_open(&plain, f->plain_port, NULL));
    expect(&plain, "/api/now", TOKEN, 404, NULL);
    client_close(&plain);
    assert_int_equal(f->asked, 0);
}

static void test_an_answer_that_is_late(void **state)
{
    fixture *f = *state;
    client c = open_from(f, "127.0.0.1");
    response r = get(&c, "/api/mute", TOKEN);
    assert_int_equal(r.status, 503);
    assert_non_null(strstr(r.head, "Retry-After: "));
    assert_non_null(strstr(r.body, "urn:precisionprobe:problem:unavailable"));
    assert_int_equal(f->given_up, 1);
    response_free(&r);
    expect(&c, "/api/now", "", 200, NULL); /* the connection goes on */
    client_close(&c);
}

/* The time for a request does not end its answer: neither while it is made nor while it is read. */
static void test_an_answer_that_takes_long(void **state)
{
    fixture *f = *state;
    client slow = open_from(f, "127.0.0.1");
    send_get(&slow, "/api/big");
    client c = open_from(f, "127.0.0.1");
    expect(&c, "/api/mute", TOKEN, 503, NULL);
    response r = client_response(&slow);
    assert_int_equal(r.status, 200);
    assert_int_equal(r.len, 5000000);
    response_free(&r);
    client_close(&slow);
    client_close(&c);
}

static void test_a_reader_that_leaves(void **state)
{
    fixture *f = *state;
    client c = open_from(f, "127.0.0.1");
    send_get(&c, "/api/mute");
    assert_true(fixture_wait(&f->asked, 1));
    client_close(&c);
    assert_true(fixture_wait(&f->given_up, 1));
}

/* One that waits when the server stops is answered (fixture_stop waits for the loop to end). */
static void test_a_stop(void **state)
{
    fixture *f = *state;
    client c = open_from(f, "127.0.0.1");
    send_get(&c, "/api/mute");
    assert_true(fixture_wait(&f->asked, 1));
    client_close(&c);
}

static void test_places(void **state)
{
    fixture *f = *state;
    client waiting[PP_HTTP_MAX_API_EACH];
    for (int i = 0; i < PP_HTTP_MAX_API_EACH; i++) {
        waiting[i] = open_from(f, "127.0.0.1");
        send_get(&waiting[i], "/api/mute");
        assert_true(fixture_wait(&f->asked, i + 1));
    }
    client more = open_from(f, "127.0.0.1");
    response r = get(&more, "/api/now", TOKEN);
    assert_int_equal(r.status, 429);
    assert_non_null(strstr(r.head, "Retry-After: 1\r\n"));
    response_free(&r);
    client elsewhere = open_from(f, "127.0.0.2");
    expect(&elsewhere, "/api/now", TOKEN, 200, NULL);
    client_close(&waiting[0]);
    assert_true(fixture_wait(&f->given_up, 1));
    expect(&more, "/api/now", TOKEN, 200, NULL);
    for (int i = 1; i < PP_HTTP_MAX_API_EACH; i++)
        client_close(&waiting[i]);
    client_close(&more);
    client_close(&elsewhere);
}

static void mute(fixture *f, client *c, int n, const char *token)
{
    char text[256];
    const int before = f->asked;
    (void)snprintf(text, sizeof text,
                   "GET /api/mute HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %s\r\n\r\n", token);
    for (int i = 0; i < n; i++) {
        c[i] = open_from(f, "127.0.0.1");
        assert_true(client_send(&c[i], text, strlen(text)));
        assert_true(fixture_wait(&f->asked, before + i + 1));
    }
}

/* Behind one proxy: whose token is known is kept out neither by others of the address nor by bad
 * tokens from there, and is limited by its user, whatever its tokens are. */
static void test_readers_behind_a_proxy(void **state)
{
    fixture *f = *state;
    client others[PP_HTTP_MAX_API_EACH], same[PP_HTTP_MAX_READS_EACH];
    client c = open_from(f, "127.0.0.1");
    expect(&c, "/api/now", "Authorization: Bearer ann-1\r\n", 200, NULL);
    expect(&c, "/api/now", "Authorization: Bearer ann-2\r\n", 200, NULL);
    expect(&c, "/api/now", "Authorization: Bearer bob-1\r\n", 200, NULL);
    mute(f, others, PP_HTTP_MAX_API_EACH, "stranger");
    expect(&c, "/api/now", "Authorization: Bearer carl-1\r\n", 429, NULL);
    expect(&c, "/api/now", "Authorization: Bearer ann-1\r\n", 200, NULL);
    mute(f, same, PP_HTTP_MAX_READS_EACH, "ann-1");
    expect(&c, "/api/now", "Authorization: Bearer ann-2\r\n", 429, NULL);
    expect(&c, "/api/now", "Authorization: Bearer bob-1\r\n", 200, NULL);
    for (int i = 0; i < PP_HTTP_MAX_API_EACH; i++)
        client_close(&others[i]);
    for (int i = 0; i < PP_HTTP_MAX_READS_EACH; i++)
        client_close(&same[i]);
    assert_true(fixture_wait(&f->given_up, PP_HTTP_MAX_API_EACH + PP_HTTP_MAX_READS_EACH));
    for (int i = 0; i < PP_HTTP_MAX_REFUSED; i++)
        expect(&c, "/api/now", "Authorization: Bearer bad\r\n", 401, NULL);
    expect(&c, "/api/now", "Authorization: Bearer carl-1\r\n", 429, NULL);
    for (int i = 0; i < 100; i++)
        expect(&c, "/api/now", "Authorization: Bearer bob-1\r\n", 200, NULL);
    client_close(&c);
}

static void test_bad_tokens(void **state)
{
    fixture *f = *state;
    client c = open_from(f, "127.0.0.1");
    for (int i = 0; i < PP_HTTP_MAX_REFUSED; i++)
        expect(&c, "/api/now", "Authorization: Bearer bad\r\n", 401, NULL);
    expect(&c, "/api/now", "Authorization: Bearer bad\r\n", 429, NULL);
    client other = open_from(f, "127.0.0.2");
    for (int i = 0; i < 2 * PP_HTTP_MAX_REFUSED; i++) /* good ones cost nothing */
        expect(&other, "/api/now", TOKEN, 200, NULL);
    client_close(&c);
    client_close(&other);
}

/* Waits until some of an answer has come, and no more of it for a second: so busy that it sends
 * nothing for as long the server is not. */
static void wait_until_it_stops(const client *c)
{
    enum { STEP_MS = 10, QUIET_MS = 1000, PATIENCE_MS = 300000 };
    int before = 0;
    for (int ms = 0, quiet = 0; quiet < QUIET_MS; ms += STEP_MS, quiet += STEP_MS) {
        int waiting = 0;
        assert_int_equal(ioctl(c->fd, FIONREAD, &waiting), 0);
        assert_true(ms < PATIENCE_MS);
        quiet = waiting > 0 && waiting == before ? quiet : 0;
        before = waiting;
        usleep(STEP_MS * 1000);
    }
}

/* Readers that do not read take no more memory than there is for them. */
static void test_answers_that_are_not_read(void **state)
{
    enum { FIT = PP_HTTP_MAX_API_BYTES / 5000000 };
    fixture *f = *state;
    client slow[FIT];
    for (int i = 0; i < FIT; i++) {
        slow[i] = open_from(f, "127.0.0.1");
        send_get(&slow[i], "/api/big");
        assert_true(fixture_wait(&f->asked, i + 1));
        wait_until_it_stops(&slow[i]); /* the first of them is the first to stop */
    }
    /* For a moment there is no room; then they go for others, those first that stopped first. */
    client c = open_from(f, "127.0.0.1");
    response r = get(&c, "/api/big", TOKEN);
    for (int tries = 0; r.status == 503 && tries < 100; tries++) {
        response_free(&r);
        usleep(100000);
        r = get(&c, "/api/big", TOKEN);
    }
    assert_int_equal(r.status, 200);
    assert_int_equal(r.len, 5000000);
    for (size_t i = 0; i < r.len; i++)
        assert_true(r.body[i] == fixture_big(i));
    response_free(&r);
    r = client_response(&slow[0]);
    assert_int_equal(r.status, 0); /* not to its end */
    response_free(&r);
    r = client_response(&slow[FIT - 1]);
    assert_int_equal(r.status, 200);
    assert_int_equal(r.len, 5000000);
    for (size_t i = 0; i < r.len; i++)
        assert_true(r.body[i] == fixture_big(i));
    response_free(&r);
    for (int i = 0; i < FIT; i++)
        client_close(&slow[i]);
    client_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_what_reaches_the_handler, start, stop),
        cmocka_unit_test_setup_teardown(test_what_does_not_reach_it, start, stop),
        cmocka_unit_test_setup_teardown(test_an_answer_that_is_late, start_hasty, stop),
        cmocka_unit_test_setup_teardown(test_an_answer_that_takes_long, start_patient, stop),
        cmocka_unit_test_setup_teardown(test_a_reader_that_leaves, start, stop),
        cmocka_unit_test_setup_teardown(test_a_stop, start, stop),
        cmocka_unit_test_setup_teardown(test_places, start, stop),
        cmocka_unit_test_setup_teardown(test_readers_behind_a_proxy, start_wary, stop),
        cmocka_unit_test_setup_teardown(test_bad_tokens, start_wary, stop),
        cmocka_unit_test_setup_teardown(test_answers_that_are_not_read, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
