#include "operator/http_server/tests/fixture.h"

#include "common/cleanup.h"
#include "common/json.h"
#include "common/log.h"
#include "common/time.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** An answer to give later. */
typedef struct later {
    uv_timer_t timer;
    fixture *fixture;
    pp_http_id id;
    bool review;
    pp_http_identity identity;
} later;

static void free_handle(uv_handle_t *handle)
{
    free(handle->data);
}

static json_t *small_patch(void)
{
    return json_pack("[{ssssss}]", "op", "add", "path", "/metadata/labels/x", "value", "y");
}

static void answer_later(uv_timer_t *timer)
{
    later *l = timer->data;
    if (l->review) {
        PP_CLEANUP_JSON json_t *patch = small_patch();
        pp_http_admission_respond(l->fixture->server, l->id, patch, NULL);
    } else {
        pp_http_authorize_respond(l->fixture->server, l->id, PP_HTTP_GRANTED, &l->identity, NULL);
    }
    uv_close((uv_handle_t *)timer, free_handle);
}

static void schedule(fixture *f, pp_http_id id, bool review, const pp_http_identity *identity)
{
    later *l = calloc(1, sizeof *l);
    l->fixture = f;
    l->id = id;
    l->review = review;
    if (identity)
        l->identity = *identity;
    (void)uv_timer_init(&f->loop, &l->timer);
    l->timer.data = l;
    (void)uv_timer_start(&l->timer, answer_later, 100, 0);
}

static bool starts(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static void on_authorize(void *context, pp_http_id id, const char *token)
{
    fixture *f = context;
    pp_http_identity identity = {.namespace_name = "ml"};
    (void)snprintf(identity.pod_uid, sizeof identity.pod_uid, "u-%.60s", token);
    (void)snprintf(identity.pod, sizeof identity.pod, "%.200s", token);
    f->authorized++;
    if (starts(token, "good"))
        pp_http_authorize_respond(f->server, id, PP_HTTP_GRANTED, &identity, NULL);
    else if (starts(token, "late"))
        schedule(f, id, false, &identity);
    else if (starts(token, "nopod"))
        pp_http_authorize_respond(f->server, id, PP_HTTP_FORBIDDEN, NULL, "no session has it");
    else if (starts(token, "away"))
        pp_http_authorize_respond(f->server, id, PP_HTTP_UNAVAILABLE, NULL, "no API server");
    else if (!starts(token, "mute"))
        pp_http_authorize_respond(f->server, id, PP_HTTP_UNAUTHORIZED, NULL, "not ours");
}

static void answer_big(fixture *f, pp_http_id id)
{
    size_t n = 2000000;
    char *text = malloc(n + 1);
    (void)memset(text, 'a', n);
    text[n] = '\0';
    PP_CLEANUP_JSON json_t *patch =
        json_pack("[{ssssss}]", "op", "add", "path", "/metadata/annotations/x", "value", text);
    pp_http_admission_respond(f->server, id, patch, NULL);
    free(text);
}

static void on_review(void *context, pp_http_id id, const pp_http_review *review)
{
    fixture *f = context;
    const json_t *object = review->pod ? review->pod : review->session;
    const char *name = pp_json_get_string(object, "metadata", "name", NULL);
    name = name ? name : "";
    f->reviews++;
    if (strcmp(name, "late") == 0) {
        schedule(f, id, true, NULL);
    } else if (strcmp(name, "big") == 0) {
        answer_big(f, id);
    } else if (strcmp(name, "passed") == 0) {
        pp_http_admission_respond(f->server, id, NULL, NULL);
    } else if (strcmp(name, "mute") != 0) {
        pp_strings warnings = {0};
        PP_CLEANUP_JSON json_t *patch = strcmp(name, "refused") == 0 ? NULL : small_patch();
        (void)pp_strings_add(&warnings, review->namespace_name, NULL);
        (void)pp_strings_add(&warnings, review->dry_run ? "dry" : "wet", NULL);
        if (review->session)
            (void)pp_strings_add(&warnings, "session", NULL);
        if (review->labelled)
            (void)pp_strings_add(&warnings, "labelled", NULL);
        pp_http_admission_respond(f->server, id, patch, &warnings);
        pp_strings_free(&warnings);
    }
}

static bool on_accepting(void *context)
{
    return !((fixture *)context)->closed;
}

static pp_http_id on_displace(void *context, const pp_http_identity *identity)
{
    const fixture *f = context;
    (void)identity;
    return f->displace ? f->first : 0;
}

static void on_connected(void *context, pp_http_id id, const pp_http_identity *identity)
{
    fixture *f = context;
    f->last_identity = *identity;
    f->first = f->first ? f->first : id;
    f->connected++;
    const pp_wire_welcome welcome = {.session = "s-1", .sampling = true};
    pp_http_ingest_welcome(f->server, id, &welcome);
}

static void hold(fixture *f, pp_http_id id, const pp_wire_batch *batch)
{
    f->held[f->held_count].connection = id;
    f->held[f->held_count].seq = batch->seq;
    (void)snprintf(f->held[f->held_count].instance, 65, "%s", batch->instance);
    f->held_count++;
}

static void on_batch(void *context, pp_http_id id, pp_wire_batch *batch)
{
    fixture *f = context;
    if (batch->interval_count)
        f->last_duration = batch->intervals[batch->interval_count - 1].duration;
    if (strcmp(batch->session, "foreign") == 0) {
        pp_error why = {0};
        (void)pp_error_field(&why, "session", "has not injected this pod");
        why.code = PP_ERR_DENIED;
        pp_http_ingest_refuse(f->server, id, batch->seq, &why);
    } else if (strcmp(batch->session, "held") == 0) {
        hold(f, id, batch);
    } else {
        pp_http_ingest_ack(f->server, id, batch->instance, batch->seq);
    }
    pp_wire_batch_free(batch);
    f->batches++;
}

static void on_bye(void *context, pp_http_id id, const pp_wire_bye *bye)
{
    fixture *f = context;
    (void)bye;
    f->byes++;
    pp_http_ingest_close(f->server, id, 1000, "bye");
}

static void on_hook(void *context, pp_http_id id, const pp_wire_hook *hook)
{
    fixture *f = context;
    (void)id;
    f->last_hook = *hook;
    f->hooks++;
}

/* Answers with the next question, up to the third. */
static void on_time(void *context, pp_http_id id, const pp_wire_time *answer)
{
    fixture *f = context;
    f->last_time = *answer;
    if (answer->id < 3)
        pp_http_ingest_ask_time(f->server, id, answer->id + 1);
    f->times++;
}

/** What was asked, as text: path, token, entity tags, then each part of the query. */
static char *describe(const pp_http_api_request *request)
{
    pp_buf text;
    pp_buf_init(&text, 65536);
    (void)pp_buf_printf(&text, NULL, "%s%s|%s|%s", request->open ? "open:" : "", request->path,
                        request->token ? request->token : "-", request->if_none_match);
    for (size_t i = 0; i < request->query->count; i++)
        (void)pp_buf_printf(&text, NULL, "|%s", request->query->items[i]);
    return pp_buf_take(&text);
}

/** The user of a token: what it begins with, up to a dash. */
static uint64_t who_of(const char *token)
{
    uint64_t who = 1;
    for (; *token && *token != '-'; token++)
        who = who * 31 + (unsigned char)*token;
    return who;
}

char fixture_big(size_t at)
{
    return (char)('a' + (at * UINT64_C(2654435761) >> 16) % 26);
}

static void on_api(void *context, pp_http_id id, const pp_http_api_request *request)
{
    fixture *f = context;
    const bool bad = request->token && starts(request->token, "bad");
    const bool big = strcmp(request->path, "/api/big") == 0;
    const size_t n = 5000000;
    f->asked++;
    if (strcmp(request->path, "/api/mute") == 0)
        return;
    char *text = big ? malloc(n + 1) : describe(request);
    for (size_t i = 0; big && i < n; i++)
        text[i] = fixture_big(i);
    if (big)
        text[n] = '\0';
    const pp_http_api_answer answer = {.status = bad ? 401 : 200,
                                       .who = request->token && !bad ? who_of(request->token) : 0,
                                       .type = "text/plain",
                                       .etag = bad ? NULL : "\"1-x\"",
                                       .body = text,
                                       .len = strlen(text),
                                       .release = big ? free : NULL,
                                       .owner = text};
    pp_http_api_respond(f->server, id, &answer);
    if (!big)
        free(text);
}

static void on_api_gone(void *context, pp_http_id id)
{
    (void)id;
    ((fixture *)context)->given_up++;
}

static bool on_file(void *context, const char *path, pp_http_file *ret)
{
    fixture *f = context;
    static const char headers[] = "X-Of: files\r\n";
    const bool moved = strcmp(path, "/moved") == 0;
    if (!moved && strcmp(path, "/files/a.txt") != 0)
        return false;
    *ret = (pp_http_file){.type = "text/plain",
                          .etag = "\"tag\"",
                          .headers = headers,
                          .location = moved ? "files/a.txt" : NULL,
                          .data = f->file,
                          .len = sizeof f->file};
    return true;
}

static void on_disconnected(void *context, pp_http_id id)
{
    (void)id;
    ((fixture *)context)->disconnected++;
}

static bool on_ready(void *context, char *reason, size_t size)
{
    if (!((fixture *)context)->unready)
        return true;
    (void)snprintf(reason, size, "the store is away");
    return false;
}

static void on_wake(uv_async_t *handle)
{
    fixture *f = handle->data;
    (void)pthread_mutex_lock(&f->lock);
    if (f->task) {
        f->task(f, f->argument);
        f->task = NULL;
        (void)pthread_cond_signal(&f->done);
    }
    (void)pthread_mutex_unlock(&f->lock);
}

static void *run_loop(void *context)
{
    fixture *f = context;
    (void)uv_run(&f->loop, UV_RUN_DEFAULT);
    pp_http_server_free(f->server);
    f->loop_left = uv_loop_close(&f->loop);
    return NULL;
}

static void die(const pp_error *err)
{
    (void)fprintf(stderr, "fixture: %s\n", err->message);
    abort();
}

static void make_certificates(fixture *f)
{
    bool changed = false;
    pp_error err = {0};
    (void)pp_strings_add(&f->names, "localhost", NULL);
    if (pp_certificates_renew(&f->certificates, &f->names, pp_time_now(), &changed, &err) < 0)
        die(&err);
    f->ca = pp_certificates_bundle(&f->certificates, &err);
}

void fixture_start(fixture *f, pp_http_options options)
{
    const pp_http_handlers handlers = {
        .context = f,
        .review = on_review,
        .authorize = on_authorize,
        .accepting = on_accepting,
        .displace = on_displace,
        .connected = on_connected,
        .batch = on_batch,
        .bye = on_bye,
        .time = on_time,
        .hook = on_hook,
        .disconnected = on_disconnected,
        .api = on_api,
        .api_gone = on_api_gone,
        .file = on_file,
        .ready = on_ready,
    };
    pp_error err = {0};
    *f = (fixture){0};
    for (size_t i = 0; i < sizeof f->file; i++)
        f->file[i] = (unsigned char)('a' + i % 26);
    pp_log_set_level(PP_LOG_ERROR);
    make_certificates(f);
    (void)pthread_mutex_init(&f->lock, NULL);
    (void)pthread_cond_init(&f->done, NULL);
    (void)uv_loop_init(&f->loop);
    (void)uv_async_init(&f->loop, &f->wake, on_wake);
    f->wake.data = f;
    f->metrics = pp_metrics_new();
    (void)pp_metrics_add_process(f->metrics, NULL);
    options.loop = &f->loop;
    options.certificate = f->certificates.certificate;
    options.key = f->certificates.key;
    options.metrics = f->metrics;
    options.path_secret = "s3cret";
    if (pp_http_server_new(&options, &handlers, &f->server, &err) < 0)
        die(&err);
    f->port = pp_http_tls_port(f->server);
    f->plain_port = pp_http_plain_port(f->server);
    if (pthread_create(&f->thread, NULL, run_loop, f) != 0)
        abort();
}

void fixture_run(fixture *f, void (*task)(fixture *f, void *argument), void *argument)
{
    (void)pthread_mutex_lock(&f->lock);
    f->task = task;
    f->argument = argument;
    (void)uv_async_send(&f->wake);
    while (f->task)
        (void)pthread_cond_wait(&f->done, &f->lock);
    (void)pthread_mutex_unlock(&f->lock);
}

static void stop_task(fixture *f, void *argument)
{
    (void)argument;
    pp_http_server_stop(f->server);
    uv_close((uv_handle_t *)&f->wake, NULL);
}

void fixture_stop(fixture *f)
{
    fixture_run(f, stop_task, NULL);
    (void)pthread_join(f->thread, NULL);
    pp_metrics_free(f->metrics);
    pp_certificates_done(&f->certificates);
    pp_strings_free(&f->names);
    free(f->ca);
    (void)pthread_mutex_destroy(&f->lock);
    (void)pthread_cond_destroy(&f->done);
}

static void release_task(fixture *f, void *argument)
{
    (void)argument;
    size_t count = f->held_count;
    f->held_count = 0;
    for (size_t i = 0; i < count; i++)
        pp_http_ingest_ack(f->server, f->held[i].connection, f->held[i].instance, f->held[i].seq);
}

void fixture_release(fixture *f)
{
    fixture_run(f, release_task, NULL);
}

bool fixture_wait(atomic_int *counter, int value)
{
    int64_t until = pp_time_monotonic() + INT64_C(300000000000);
    while (*counter < value) {
        if (pp_time_monotonic() > until)
            return false;
        const struct timespec turn = {.tv_nsec = 1000000};
        (void)nanosleep(&turn, NULL);
    }
    return true;
}
