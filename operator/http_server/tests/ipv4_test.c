/* The server on a node that was booted with ipv6.disable=1, and one that gets no socket at all. */
#include "common/tests/cmocka_all.h"
#include "common/time.h"
#include "operator/http_server/tests/client.h"
#include "operator/http_server/tests/fixture.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static int left = -1; /* sockets of IPv4 that the kernel has left; -1: any number */

/* The program's own is called by libraries, too. */
__attribute__((visibility("default"))) int socket(int domain, int type, int protocol)
{
    if (domain == AF_INET6 || (domain == AF_INET && left == 0)) {
        errno = domain == AF_INET6 ? EAFNOSUPPORT : ENOBUFS;
        return -1;
    }
    if (domain == AF_INET && left > 0)
        left--;
    return (int)syscall(SYS_socket, domain, type, protocol);
}

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

static int status_at(int port, const char *ca, const char *path)
{
    client c;
    assert_true(client_open(&c, port, ca));
    response r = client_request(&c, "GET", path, "", NULL, 0);
    const int status = r.status;
    response_free(&r);
    client_close(&c);
    return status;
}

static void test_serves_without_ipv6(void **state)
{
    (void)state;
    static const char *const addresses[] = {NULL, "127.0.0.1"};
    for (size_t i = 0; i < sizeof addresses / sizeof addresses[0]; i++) {
        fixture *f = calloc(1, sizeof *f);
        assert_non_null(f);
        const int open_port = free_port();
        fixture_start(f, (pp_http_options){.max_connections = 8,
                                           .address = addresses[i],
                                           .open_port = open_port});
        assert_int_equal(status_at(f->port, f->ca, "/files/a.txt"), 200);
        assert_int_equal(status_at(f->plain_port, NULL, "/healthz"), 200);
        assert_int_equal(status_at(open_port, NULL, "/files/a.txt"), 200);
        fixture_stop(f);
        assert_int_equal(f->loop_left, 0);
        free(f);
    }
}

/* Whichever of its ports it is that has no listener, none serves. */
static void test_no_listener_is_an_error(void **state)
{
    (void)state;
    uv_loop_t loop;
    pp_certificates made = {0};
    pp_strings names = {0};
    bool changed = false;
    const pp_http_handlers handlers = {0};
    assert_int_equal(pp_strings_add(&names, "localhost", NULL), 0);
    assert_int_equal(pp_certificates_renew(&made, &names, pp_time_now(), &changed, NULL), 0);
    assert_int_equal(uv_loop_init(&loop), 0);
    const pp_http_options options = {
        .loop = &loop,
        .certificate = made.certificate,
        .key = made.key,
        .max_connections = 8,
        .open_port = free_port(),
    };
    for (int sockets = 0; sockets < 3; sockets++) {
        pp_error err = {0};
        pp_http_server *server = NULL;
        left = sockets;
        const int rc = pp_http_server_new(&options, &handlers, &server, &err);
        assert_int_equal(left, 0);
        left = -1;
        assert_int_equal(rc, -1);
        assert_int_equal(err.code, PP_ERR_IO);
        assert_non_null(strstr(err.message, "cannot listen on port"));
        assert_int_equal(strstr(err.message, "loopback") != NULL, sockets == 2);
        assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
        pp_http_server_free(server);
    }
    assert_int_equal(uv_loop_close(&loop), 0);
    pp_certificates_done(&made);
    pp_strings_free(&names);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_serves_without_ipv6),
        cmocka_unit_test(test_no_listener_is_an_error),
    };
    return cmocka_run_group_tests_name("http_ipv4", tests, NULL, NULL);
}
