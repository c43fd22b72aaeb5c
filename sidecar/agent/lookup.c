#include "sidecar/agent/lookup.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* What the thread and the loop share: whoever comes second frees it. */
typedef struct question {
    char host[256];
    pp_lookup *asker; /* NULL: nobody wants the answer any more */
    bool answered;
    pp_route_list found;
    int error; /* of getaddrinfo */
} question;

struct pp_lookup {
    uv_async_t wake;
    question *open; /* NULL: none */
    char host[256];
    pp_lookup_fn fn;
    void *user;
};

/* Of all questions: it is held for moments, and no question has to outlive its own lock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void add(pp_route_list *list, const struct addrinfo *info)
{
    char text[INET6_ADDRSTRLEN] = "";
    const void *address =
        info->ai_family == AF_INET6
            ? (const void *)&((const struct sockaddr_in6 *)(const void *)info->ai_addr)->sin6_addr
            : &((const struct sockaddr_in *)(const void *)info->ai_addr)->sin_addr;
    if (inet_ntop(info->ai_family, address, text, sizeof text))
        pp_route_add(list, text);
}

static void *ask(void *argument)
{
    question *q = argument;
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    q->error = getaddrinfo(q->host, NULL, &hints, &list);
    for (const struct addrinfo *info = q->error ? NULL : list; info; info = info->ai_next)
        add(&q->found, info);
    if (!q->error)
        freeaddrinfo(list);
    (void)pthread_mutex_lock(&lock);
    q->answered = true;
    bool wanted = q->asker != NULL;
    if (wanted)
        (void)uv_async_send(&q->asker->wake);
    (void)pthread_mutex_unlock(&lock);
    if (!wanted)
        free(q);
    return NULL;
}

static void on_wake(uv_async_t *wake)
{
    pp_lookup *lookup = wake->data;
    question *q = lookup->open;
    (void)pthread_mutex_lock(&lock);
    bool answered = q && q->answered;
    (void)pthread_mutex_unlock(&lock);
    if (!answered)
        return;
    lookup->open = NULL;
    lookup->fn(lookup->user, &q->found, q->error ? gai_strerror(q->error) : "no address");
    free(q);
}

int pp_lookup_new(uv_loop_t *loop, const char *host, pp_lookup_fn answered, void *user,
                  pp_lookup **ret, pp_error *err)
{
    pp_lookup *lookup = calloc(1, sizeof *lookup);
    if (!lookup)
        return pp_error_nomem(err);
    lookup->fn = answered;
    lookup->user = user;
    lookup->wake.data = lookup;
    (void)snprintf(lookup->host, sizeof lookup->host, "%s", host);
    if (uv_async_init(loop, &lookup->wake, on_wake) != 0) {
        free(lookup);
        return pp_error_set(err, PP_ERR_INTERNAL, "libuv handles could not be made");
    }
    *ret = lookup;
    return 0;
}

static int begin(question *q)
{
    pthread_t thread;
    pthread_attr_t detached;
    if (pthread_attr_init(&detached) != 0)
        return -1;
    int rc = pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    rc = rc ? rc : pthread_create(&thread, &detached, ask, q);
    (void)pthread_attr_destroy(&detached);
    return rc ? -1 : 0;
}

int pp_lookup_start(pp_lookup *lookup, pp_error *err)
{
    if (lookup->open)
        return 0;
    question *q = calloc(1, sizeof *q);
    if (!q)
        return pp_error_nomem(err);
    (void)snprintf(q->host, sizeof q->host, "%s", lookup->host);
    q->asker = lookup;
    if (begin(q) < 0) {
        free(q);
        return pp_error_set(err, PP_ERR_INTERNAL, "no thread for the resolver");
    }
    lookup->open = q;
    return 0;
}

static void on_closed(uv_handle_t *handle)
{
    free(handle->data);
}

void pp_lookup_stop(pp_lookup *lookup)
{
    if (!lookup)
        return;
    question *q = lookup->open;
    (void)pthread_mutex_lock(&lock);
    bool answered = q && q->answered;
    if (q)
        q->asker = NULL;
    (void)pthread_mutex_unlock(&lock);
    if (answered)
        free(q);
    uv_close((uv_handle_t *)&lookup->wake, on_closed);
}
