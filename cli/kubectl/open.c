#include "cli/kubectl/open.h"

#include "common/cleanup.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TEXT_MAX = 1024 };

extern char **environ;

/* "Starting to serve on 127.0.0.1:40123" */
static int port_of(int out, pp_error *err)
{
    char line[TEXT_MAX];
    size_t n = 0;
    while (n < sizeof line - 1) {
        const ssize_t got = read(out, line + n, 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0 || line[n] == '\n')
            break;
        n++;
    }
    line[n] = '\0';
    const char *colon = strrchr(line, ':');
    const long port = colon ? strtol(colon + 1, NULL, 10) : 0;
    if (port <= 0 || port > UINT16_MAX)
        return pp_error_set(err, PP_ERR_UNAVAILABLE, "kubectl proxy did not start: %s", line);
    return (int)port;
}

/* Quietly: not every machine has one. */
static void show(const char *address)
{
    pid_t child;
    char *arguments[] = {(char *)(uintptr_t) "xdg-open", (char *)(uintptr_t)address, NULL};
    if (!getenv("DISPLAY") && !getenv("WAYLAND_DISPLAY"))
        return;
    if (posix_spawnp(&child, arguments[0], NULL, NULL, arguments, environ) == 0)
        (void)waitpid(child, NULL, 0);
}

static int serve(const pp_session_api_where *w, const char *base, const char *session, int port,
                 bool browser)
{
    char address[TEXT_MAX];
    if (session)
        (void)snprintf(address, sizeof address, "http://127.0.0.1:%d%s/page/#/session/%s/%s", port,
                       base, w->namespace, session);
    else
        (void)snprintf(address, sizeof address,
                       "http://127.0.0.1:%d%s/page/#/sessions?namespace=%s", port, base,
                       w->namespace);
    (void)printf("%s\n", address);
    if (!w->token)
        (void)fprintf(stderr, "a token for its login: kubectl -n %s create token %s\n",
                      w->namespace, w->account);
    (void)fflush(stdout);
    if (browser)
        show(address);
    return 0;
}

/* Fails with the cause where the proxy would start and have nothing to serve. */
static int try_page(const pp_kubectl *k, const char *base, pp_error *err)
{
    char page[TEXT_MAX];
    (void)snprintf(page, sizeof page, "%s/page/", base);
    const char *const arguments[] = {"get", "--raw", page, "--request-timeout=20s", NULL};
    return pp_kubectl_try(k, arguments, "the page is not to be had", err);
}

int pp_open_page(const pp_kubectl *k, const pp_session_api_where *w, const char *session,
                 bool browser, pp_error *err)
{
    char accepted[TEXT_MAX];
    pid_t proxy = 0;
    int out = -1, status = 0;
    PP_CLEANUP_FREE char *base = pp_session_api_base(w);
    if (!base)
        return pp_error_nomem(err);
    if (try_page(k, base, err) < 0)
        return -1;
    (void)snprintf(accepted, sizeof accepted, "--accept-paths=^%s/", base);
    const char *const arguments[] = {"proxy", "--port=0", accepted,
                                     "--reject-methods=POST,PUT,PATCH,DELETE", NULL};
    if (pp_kubectl_start(k, arguments, -1, &proxy, &out, err) < 0)
        return -1;
    pp_kubectl_guard(proxy, NULL, NULL);
    const int port = port_of(out, err);
    const int rc = port > 0 ? serve(w, base, session, port, browser) : -1;
    if (rc == 0)
        while (waitpid(proxy, &status, 0) < 0 && errno == EINTR)
            continue;
    else
        pp_kubectl_stop(proxy);
    (void)close(out);
    return rc;
}
