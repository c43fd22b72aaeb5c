/* Files that are the same for everybody, and the port on loopback, at the server's edge. */
#include "common/tests/cmocka_all.h"
#include "operator/http_server/tests/client.h"
#include "operator/http_server/tests/fixture.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_PATH "/files/a.txt"

static int open_port;

/** One that nobody listens on: the kernel does not give it to anybody else soon. */
static int free_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, len), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    (void)close(fd);
    return ntohs(at.sin_port);
}

static int start_on(void **state, const char *address)
{
    fixture *f = malloc(sizeof *f);
    assert_non_null(f);
    open_port = free_port();
    fixture_start(
        f, (pp_http_options){.max_connections = 8, .open_port = open_port, .address = address});
    *state = f;
    return 0;
}

static int start(void **state)
{
    return start_on(state, NULL);
}

static int start_on_one_address(void **state)
{
    return start_on(state, "127.0.0.1");
}

static int stop(void **state)
{
    fixture *f = *state;
    fixture_stop(f);
    int left = f->loop_left;
    free(f);
    return left;
}

static client opened(const fixture *f, int port)
{
    client c;
    assert_true(client_open(&c, port, port == f->port ? f->ca : NULL));
    return c;
}

/** The answer's status; its body, where there is one, is the file. */
static int status_of(client *c, const fixture *f, const char *method, const char *headers)
{
    response r = client_request(c, method, FILE_PATH, headers, NULL, 0);
    const int status = r.status;
    if (status == 200 && strcmp(method, "GET") == 0) {
        assert_int_equal(r.len, sizeof f->file);
        assert_memory_equal(r.body, f->file, r.len);
    }
    if (status == 200 || status == 304) {
        assert_non_null(strstr(r.head, "ETag: \"tag\"\r\n"));
        assert_non_null(strstr(r.head, "X-Of: files\r\n"));
    }
    response_free(&r);
    return status;
}

static void test_a_file_is_whole(void **state)
{
    fixture *f = *state;
    const int ports[] = {f->port, open_port};
    for (int i = 0; i < 2; i++) {
        client c = opened(f, ports[i]);
        assert_int_equal(status_of(&c, f, "GET", ""), 200);
        assert_int_equal(status_of(&c, f, "GET", ""), 200); /* once more */
        assert_int_equal(status_of(&c, f, "GET", "If-None-Match: \"x\", \"tag\"\r\n"), 304);
        assert_int_equal(status_of(&c, f, "GET", "If-None-Match: *\r\n"), 304);
        assert_int_equal(status_of(&c, f, "GET", "If-None-Match: \"ta\"\r\n"), 200);
        client_close(&c);
    }
}

static void test_only_its_head_is_asked_for(void **state)
{
    fixture *f = *state;
    client c = opened(f, f->port);
    static const char text[] = "HEAD " FILE_PATH " HTTP/1.1\r\nHost: a\r\n\r\n";
    char got[1024] = "";
    assert_true(client_send(&c, text, sizeof text - 1));
    while (!strstr(got, "\r\n\r\n"))
        assert_int_equal(client_read(&c, got + strlen(got), 1), 1);
    assert_non_null(strstr(got, "200 OK"));
    assert_non_null(strstr(got, "Content-Length: 100000\r\n"));
    assert_true(client_is_cut(&c)); /* without a byte of its body */
    client_close(&c);
}

static void test_files_are_not_written(void **state)
{
    fixture *f = *state;
    static const char *const methods[] = {"POST", "PUT", "DELETE", "PATCH", "OPTIONS"};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        client c = opened(f, f->port);
        assert_int_equal(status_of(&c, f, methods[i], ""), 405);
        client_close(&c);
    }
}

static void test_a_path_that_leads_elsewhere(void **state)
{
    fixture *f = *state;
    client c = opened(f, f->port);
    response r = client_request(&c, "GET", "/moved", "", NULL, 0);
    assert_int_equal(r.status, 308);
    assert_non_null(strstr(r.head, "Location: files/a.txt\r\n"));
    assert_int_equal(r.len, 0);
    response_free(&r);
    client_close(&c);
    client plain = opened(f, f->plain_port);
    assert_int_equal(status_of(&plain, f, "GET", ""), 404);
    client_close(&plain);
}

static int open_status(const fixture *f, const char *path, const char *host, const char *body)
{
    char headers[128];
    client c = opened(f, open_port);
    (void)snprintf(headers, sizeof headers, "GET %s HTTP/1.1\r\n%s\r\n", path, host);
    assert_true(client_send(&c, headers, strlen(headers)));
    response r = client_response(&c);
    const int status = r.status;
    if (body)
        assert_string_equal(r.body, body);
    response_free(&r);
    client_close(&c);
    return status;
}

static void test_loopback_asks_for_no_token(void **state)
{
    const fixture *f = *state;
    static const char now[] = "/api/now";
    assert_int_equal(open_status(f, now, "Host: localhost\r\n", "open:/api/now|-|"), 200);
    assert_int_equal(open_status(f, now, "Host: 127.0.0.1:9444\r\n", NULL), 200);
    assert_int_equal(open_status(f, now, "Host: [::1]:9444\r\n", NULL), 200);
    const int before = f->asked;
    assert_int_equal(open_status(f, now, "Host: evil.example\r\n", NULL), 421);
    assert_int_equal(open_status(f, now, "Host: localhost.evil.example\r\n", NULL), 421);
    assert_int_equal(open_status(f, now, "", NULL), 421);
    assert_int_equal(open_status(f, FILE_PATH, "Host: evil.example\r\n", NULL), 421);
    assert_int_equal(open_status(f, "/metrics", "Host: localhost\r\n", NULL), 404);
    assert_int_equal(open_status(f, "/s3cret/pods", "Host: localhost\r\n", NULL), 404);
    assert_int_equal(f->asked, before);
    client c = opened(f, f->port);
    response r = client_request(&c, "GET", now, "Host: localhost\r\n", NULL, 0);
    assert_string_equal(r.body, "/api/now|-|"); /* who comes by TLS is not taken for it */
    response_free(&r);
    client_close(&c);
}

/** Whether a port is listened on at this machine's address 127.0.0.2. */
static bool is_elsewhere(int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(inet_pton(AF_INET, "127.0.0.2", &at.sin_addr), 1);
    const bool connected = connect(fd, (struct sockaddr *)&at, sizeof at) == 0;
    (void)close(fd);
    return connected;
}

static void test_loopback_is_one_address(void **state)
{
    const fixture *f = *state;
    assert_true(is_elsewhere(f->port)); /* which is listened on at all */
    assert_false(is_elsewhere(open_port));
}

static void test_an_address_is_one_address(void **state)
{
    const fixture *f = *state;
    assert_false(is_elsewhere(f->port));
    assert_false(is_elsewhere(f->plain_port));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_file_is_whole, start, stop),
        cmocka_unit_test_setup_teardown(test_only_its_head_is_asked_for, start, stop),
        cmocka_unit_test_setup_teardown(test_files_are_not_written, start, stop),
        cmocka_unit_test_setup_teardown(test_a_path_that_leads_elsewhere, start, stop),
        cmocka_unit_test_setup_teardown(test_loopback_asks_for_no_token, start, stop),
        cmocka_unit_test_setup_teardown(test_loopback_is_one_address, start, stop),
        cmocka_unit_test_setup_teardown(test_an_address_is_one_address, start_on_one_address, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
