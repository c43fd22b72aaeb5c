/* The framer and the informer's state machine, on recorded and made-up streams. */
#include "common/buf.h"
#include "common/cleanup.h"
#include "common/json.h"
#include "operator/kube/framer.h"
#include "operator/kube/reflector.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const int64_t S = 1000000000;

/* ---- the framer ---- */

static int join_line(void *user, const char *line, size_t n, pp_error *err)
{
    pp_buf *out = user;
    if (pp_buf_append(out, line, n, err) < 0 || pp_buf_append(out, "|", 1, err) < 0)
        return -1;
    return n == 4 && memcmp(line, "stop", 4) == 0 ? pp_error_set(err, PP_ERR_GONE, "stop") : 0;
}

static void test_framing_at_every_split(void **state)
{
    (void)state;
    static const char text[] = "one\ntwo\r\n\n\r\nthree and more\nrest";
    size_t n = sizeof text - 1;
    for (size_t i = 0; i <= n; i++)
        for (size_t j = i; j <= n; j++) {
            pp_framer framer;
            pp_buf out;
            pp_framer_init(&framer, 64);
            pp_buf_init(&out, 256);
            assert_int_equal(pp_framer_feed(&framer, text, i, join_line, &out, NULL), 0);
            assert_int_equal(pp_framer_feed(&framer, text + i, j - i, join_line, &out, NULL), 0);
            assert_int_equal(pp_framer_feed(&framer, text + j, n - j, join_line, &out, NULL), 0);
            assert_string_equal(out.data, "one|two|three and more|");
            assert_int_equal(framer.tail.len, 4);
            pp_framer_done(&framer);
            pp_buf_done(&out);
        }
}

static void test_framing_limit(void **state)
{
    (void)state;
    static const char *const pieces[][3] = {
        {"123456789\n", NULL, NULL}, {"12345", "6789\n", NULL}, {"12345", "6789", NULL}};
    for (size_t i = 0; i < 3; i++) {
        pp_framer framer;
        pp_buf out;
        pp_error err = {0};
        pp_framer_init(&framer, 8);
        pp_buf_init(&out, 64);
        int rc = 0;
        for (size_t p = 0; rc == 0 && pieces[i][p]; p++)
            rc = pp_framer_feed(&framer, pieces[i][p], strlen(pieces[i][p]), join_line, &out, &err);
        assert_int_equal(rc, -1);
        assert_int_equal(err.code, PP_ERR_TOO_LARGE);
        pp_framer_reset(&framer);
        assert_int_equal(pp_framer_feed(&framer, "12345678\n", 9, join_line, &out, &err), 0);
        assert_string_equal(out.data, "12345678|");
        pp_framer_done(&framer);
        pp_buf_done(&out);
    }
}

static void test_framing_stops(void **state)
{
    (void)state;
    pp_framer framer;
    pp_buf out;
    pp_error err = {0};
    pp_framer_init(&framer, 64);
    pp_buf_init(&out, 64);
    assert_int_equal(pp_framer_feed(&framer, "a\nstop\nb\n", 9, join_line, &out, &err), -1);
    assert_int_equal(err.code, PP_ERR_GONE);
    assert_string_equal(out.data, "a|stop|");
    pp_framer_done(&framer);
    pp_buf_done(&out);
}

/* ---- the reflector ---- */

typedef struct world {
    pp_reflector *reflector;
    pp_buf log;
    pp_error last_error;
    int errors, synced;
    const char *stop_at; /* stop the reflector when this key is added */
    int64_t now;
} world;

static void *decode(void *user, const json_t *object, pp_error *err)
{
    (void)user;
    const char *a = pp_json_get_string(object, "data", "a", NULL);
    if (a && strcmp(a, "bad") == 0) {
        (void)pp_error_field(err, "data.a", "is bad");
        return NULL;
    }
    if (a && strcmp(a, "hidden") == 0)
        return NULL;
    return strdup(a ? a : "-");
}

static void log_add(void *user, const char *key, const void *object)
{
    world *w = user;
    (void)pp_buf_printf(&w->log, NULL, "+%s=%s ", key, (const char *)object);
    if (w->stop_at && strcmp(w->stop_at, key) == 0)
        pp_reflector_stop(w->reflector);
}

static void log_update(void *user, const char *key, const void *old, const void *object)
{
    world *w = user;
    (void)pp_buf_printf(&w->log, NULL, "~%s=%s>%s ", key, (const char *)old, (const char *)object);
    /* the cache shows the new one already */
    assert_ptr_equal(pp_reflector_get(w->reflector, key), object);
}

static void log_delete(void *user, const char *key, const void *last)
{
    world *w = user;
    (void)pp_buf_printf(&w->log, NULL, "-%s=%s ", key, (const char *)last);
    assert_null(pp_reflector_get(w->reflector, key));
}

static void log_synced(void *user)
{
    world *w = user;
    w->synced++;
    (void)pp_buf_printf(&w->log, NULL, "synced ");
}

static void log_error(void *user, const pp_error *error)
{
    world *w = user;
    w->errors++;
    w->last_error = *error;
}

static void world_start(world *w, bool watch_list)
{
    *w = (world){.now = 1000 * S};
    pp_buf_init(&w->log, 1 << 16);
    pp_kube_informer_options options = {
        .page_limit = 2,
        .max_objects = 4,
        .no_watch_list = !watch_list,
        .handler = {.decode = decode,
                    .free_object = free,
                    .on_add = log_add,
                    .on_update = log_update,
                    .on_delete = log_delete,
                    .on_synced = log_synced,
                    .on_error = log_error,
                    .user = w},
    };
    w->reflector = pp_reflector_new(&options, 7, NULL);
    assert_non_null(w->reflector);
}

static void world_end(world *w)
{
    pp_reflector_free(w->reflector);
    pp_buf_done(&w->log);
}

static pp_reflector_step next(world *w)
{
    pp_reflector_step step;
    pp_reflector_next(w->reflector, w->now, &step);
    return step;
}

static void expect_wait(world *w)
{
    pp_reflector_step step = next(w);
    assert_int_equal(step.what, PP_REFLECT_WAIT);
    assert_in_range(step.wait_ms, 800, 30000);
}

static void expect_list(world *w, const char *token, int limit)
{
    pp_reflector_step step = next(w);
    assert_int_equal(step.what, PP_REFLECT_LIST);
    assert_int_equal(step.limit, limit);
    if (token)
        assert_string_equal(step.continue_token, token);
    else
        assert_null(step.continue_token);
}

/** A watch from `version`, or one that streams the list where version is NULL. */
static void expect_watch(world *w, const char *version)
{
    pp_reflector_step step = next(w);
    assert_int_equal(step.what, PP_REFLECT_WATCH);
    assert_in_range(step.timeout_ms, 300 * 1000, 600 * 1000);
    assert_non_null(strstr(step.query, "allowWatchBookmarks=true"));
    assert_int_equal(step.streams_list, version == NULL);
    if (version) {
        char want[64];
        (void)snprintf(want, sizeof want, "&resourceVersion=%s", version);
        const char *at = strstr(step.query, want);
        assert_non_null(at);
        assert_string_equal(at, want);
    } else {
        assert_non_null(strstr(step.query, "sendInitialEvents=true"));
        assert_non_null(strstr(step.query, "resourceVersionMatch=NotOlderThan"));
        assert_null(strstr(step.query, "resourceVersion="));
    }
}

static void page(world *w, const char *text)
{
    PP_CLEANUP_JSON json_t *list = json_loads(text, 0, NULL);
    assert_non_null(list);
    pp_reflector_page(w->reflector, list, w->now);
}

static int feed(world *w, const char *text, pp_error *err)
{
    return pp_reflector_bytes(w->reflector, text, strlen(text), err);
}

static void fail_with(world *w, pp_error_code code)
{
    pp_error err = {0};
    (void)pp_error_set(&err, code, "made up");
    pp_reflector_failed(w->reflector, &err, w->now);
}

#define ITEM(name, rv, a)                                                                          \
    "{\"metadata\":{\"namespace\":\"n\",\"name\":\"" name "\",\"resourceVersion\":\"" rv           \
    "\"},\"data\":{\"a\":\"" a "\"}}"
#define EVENT(type, item) "{\"type\":\"" type "\",\"object\":" item "}\n"
#define LIST(rv, more, items)                                                                      \
    "{\"metadata\":{\"resourceVersion\":\"" rv "\",\"continue\":\"" more "\"},\"items\":[" items   \
    "]}"
#define BOOKMARK(rv)                                                                               \
    "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"" rv "\"}}}\n"
#define EXPIRED                                                                                    \
    "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},"   \
    "\"status\":\"Failure\",\"message\":\"too old resource version: 10 (200)\","                   \
    "\"reason\":\"Expired\",\"code\":410}}\n"

/** Lists {x=1, y=1} at version 10 and begins to watch. */
static void reach_watching(world *w)
{
    world_start(w, false);
    expect_list(w, NULL, 2);
    page(w, LIST("10", "", ITEM("x", "5", "1") "," ITEM("y", "6", "1")));
    assert_string_equal(w->log.data, "+n/x=1 +n/y=1 synced ");
    pp_buf_reset(&w->log);
    expect_watch(w, "10");
}

static char *read_fixture(const char *name, size_t *ret_n)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/operator/kube/tests/fixtures/%s", PP_SOURCE_DIR, name);
    PP_CLEANUP_FILE FILE *f = fopen(path, "rb");
    assert_non_null(f);
    char *text = malloc(1 << 20);
    *ret_n = fread(text, 1, 1 << 20, f);
    return text;
}

/* What the recording of a real server must do, whatever pieces it comes in. */
static const char RECORDED[] =
    "+pp-record/first=1 +pp-record/kube-root-ca.crt=- +pp-record/second=- synced "
    "~pp-record/first=1>2 -pp-record/second=- +pp-record/third=- ";

static void test_recorded_stream_at_every_split(void **state)
{
    (void)state;
    size_t n;
    PP_CLEANUP_FREE char *text = read_fixture("watchlist.ndjson", &n);
    assert_true(n > 3000);
    for (size_t i = 0; i <= n; i++) {
        world w;
        world_start(&w, true);
        expect_watch(&w, NULL);
        assert_int_equal(pp_reflector_bytes(w.reflector, text, i, NULL), 0);
        assert_int_equal(pp_reflector_bytes(w.reflector, text + i, n - i, NULL), 0);
        assert_string_equal(w.log.data, RECORDED);
        assert_int_equal(w.errors, 0);
        assert_int_equal(pp_reflector_count(w.reflector), 3);
        pp_reflector_ended(w.reflector, w.now + 400 * S);
        expect_watch(&w, "1098"); /* from the last bookmark */
        world_end(&w);
    }
}

static void test_recorded_stream_byte_by_byte(void **state)
{
    (void)state;
    size_t n;
    PP_CLEANUP_FREE char *text = read_fixture("watchlist.ndjson", &n);
    world w;
    world_start(&w, true);
    expect_watch(&w, NULL);
    assert_true(pp_reflector_streaming(w.reflector));
    for (size_t i = 0; i < n; i++)
        assert_int_equal(pp_reflector_bytes(w.reflector, text + i, 1, NULL), 0);
    assert_string_equal(w.log.data, RECORDED);
    assert_false(pp_reflector_streaming(w.reflector));
    pp_kube_informer_stats stats = pp_reflector_get_stats(w.reflector);
    assert_int_equal(stats.lists, 1);
    assert_int_equal(stats.events, 9);
    world_end(&w);
}

static void test_streamed_list_refused(void **state)
{
    (void)state;
    world w;
    world_start(&w, true);
    expect_watch(&w, NULL);
    fail_with(&w, PP_ERR_INVALID); /* "sendInitialEvents is forbidden ..." */
    expect_list(&w, NULL, 2);      /* at once, and not as a fault */
    assert_int_equal(w.errors, 0);
    page(&w, LIST("10", "", ITEM("x", "5", "1")));
    expect_watch(&w, "10");
    fail_with(&w, PP_ERR_GONE);
    expect_wait(&w);
    expect_list(&w, NULL, 2); /* not tried again */
    world_end(&w);
}

static void test_streamed_list_without_its_end(void **state)
{
    (void)state;
    world w;
    world_start(&w, true);
    expect_watch(&w, NULL);
    assert_int_equal(feed(&w, EVENT("ADDED", ITEM("x", "5", "1")), NULL), 0);
    pp_reflector_ended(w.reflector, w.now);
    assert_int_equal(w.synced, 0);
    expect_list(&w, NULL, 2);
    page(&w, LIST("10", "", ITEM("y", "6", "1")));
    assert_string_equal(w.log.data, "+n/x=1 +n/y=1 -n/x=1 synced ");
    world_end(&w);
}

static void test_streamed_relist_deletes(void **state)
{
    (void)state;
    world w;
    world_start(&w, true);
    expect_watch(&w, NULL);
    const char *end = "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"9\","
                      "\"annotations\":{\"k8s.io/initial-events-end\":\"true\"}}}}\n";
    assert_int_equal(
        feed(&w, EVENT("ADDED", ITEM("x", "5", "1")) EVENT("ADDED", ITEM("y", "6", "1")), NULL), 0);
    assert_int_equal(feed(&w, end, NULL), 0);
    fail_with(&w, PP_ERR_GONE);
    expect_wait(&w);
    expect_watch(&w, NULL);
    assert_int_equal(feed(&w, EVENT("ADDED", ITEM("y", "6", "1")), NULL), 0);
    assert_int_equal(pp_reflector_count(w.reflector), 2); /* not before the list is complete */
    assert_int_equal(feed(&w, end, NULL), 0);
    assert_string_equal(w.log.data, "+n/x=1 +n/y=1 synced -n/x=1 ");
    world_end(&w);
}

static void test_events(void **state)
{
    (void)state;
    world w;
    reach_watching(&w);
    assert_int_equal(feed(&w,
                          EVENT("MODIFIED", ITEM("x", "11", "2"))
                              EVENT("DELETED", ITEM("y", "12", "last"))
                                  EVENT("ADDED", ITEM("z", "13", "1"))
                                      EVENT("DELETED", ITEM("never-seen", "14", "1"))
                                          EVENT("FUTURE", ITEM("z", "15", "1")),
                          NULL),
                     0);
    assert_string_equal(w.log.data, "~n/x=1>2 -n/y=last +n/z=1 ");
    pp_reflector_ended(w.reflector, w.now + 300 * S);
    expect_watch(&w, "14"); /* at once: ending is no fault */
    assert_int_equal(w.errors, 0);
    world_end(&w);
}

static void test_bookmark_moves_the_version(void **state)
{
    (void)state;
    world w;
    reach_watching(&w);
    assert_int_equal(feed(&w, BOOKMARK("a/b c"), NULL), 0);
    pp_reflector_ended(w.reflector, w.now + 300 * S);
    expect_watch(&w, "a%2Fb%20c"); /* opaque, and still one query parameter */
    assert_string_equal(w.log.data, "");
    world_end(&w);
}

static void test_gone_in_stream(void **state)
{
    (void)state;
    world w;
    pp_error err = {0};
    reach_watching(&w);
    assert_int_equal(feed(&w, EXPIRED, &err), -1);
    assert_int_equal(err.code, PP_ERR_GONE);
    pp_reflector_failed(w.reflector, &err, w.now);
    expect_wait(&w);
    expect_list(&w, NULL, 2);
    page(&w, LIST("300", "", ITEM("y", "6", "1") "," ITEM("z", "299", "1")));
    /* y is as it was: nothing is said about it. x vanished meanwhile. */
    assert_string_equal(w.log.data, "+n/z=1 -n/x=1 ");
    expect_watch(&w, "300");
    assert_int_equal(w.synced, 1); /* said once, long ago */
    world_end(&w);
}

static void test_gone_as_status(void **state)
{
    (void)state;
    world w;
    reach_watching(&w);
    fail_with(&w, PP_ERR_GONE);
    expect_wait(&w);
    expect_list(&w, NULL, 2);
    world_end(&w);
}

static void test_lost_connection_resumes(void **state)
{
    (void)state;
    world w;
    reach_watching(&w);
    assert_int_equal(feed(&w, EVENT("MODIFIED", ITEM("x", "11", "2")) "{\"type\":\"MODI", NULL), 0);
    fail_with(&w, PP_ERR_UNAVAILABLE);
    expect_wait(&w);
    expect_watch(&w, "11"); /* the half event comes again from there */
    assert_int_equal(feed(&w, EVENT("MODIFIED", ITEM("x", "12", "3")), NULL), 0);
    assert_string_equal(w.log.data, "~n/x=1>2 ~n/x=2>3 ");
    world_end(&w);
}

static void test_watch_that_never_works_relists(void **state)
{
    (void)state;
    world w;
    reach_watching(&w);
    int watches = 0;
    for (;;) {
        fail_with(&w, PP_ERR_TIMEOUT); /* as for a version newer than the server's own */
        expect_wait(&w);
        pp_reflector_step step = next(&w);
        if (step.what == PP_REFLECT_LIST)
            break;
        assert_true(++watches < 10);
    }
    assert_int_equal(watches, 4);
    world_end(&w);
}

static void test_watch_that_ends_at_once_waits(void **state)
{
    (void)state;
    world w;
    reach_watching(&w);
    pp_reflector_ended(w.reflector, w.now + S / 10);
    assert_int_equal(w.errors, 1);
    expect_wait(&w);
    expect_watch(&w, "10");
    world_end(&w);
}

static void test_paging(void **state)
{
    (void)state;
    world w;
    world_start(&w, false);
    expect_list(&w, NULL, 2);
    page(&w, LIST("10", "more1", ITEM("x", "5", "1") "," ITEM("y", "6", "1")));
    assert_int_equal(w.synced, 0);
    expect_list(&w, "more1", 2);
    page(&w, LIST("10", "", ITEM("z", "7", "1")));
    assert_int_equal(w.synced, 1);
    expect_watch(&w, "10");
    world_end(&w);
}

static void test_expired_page_asks_for_all(void **state)
{
    (void)state;
    world w;
    world_start(&w, false);
    expect_list(&w, NULL, 2);
    page(&w, LIST("10", "more1", ITEM("x", "5", "1") "," ITEM("y", "6", "1")));
    expect_list(&w, "more1", 2);
    fail_with(&w, PP_ERR_GONE);
    expect_list(&w, NULL, 0); /* at once, without a limit */
    assert_int_equal(w.errors, 0);
    page(&w, LIST("20", "", ITEM("y", "6", "1") "," ITEM("z", "15", "1")));
    assert_string_equal(w.log.data, "+n/x=1 +n/y=1 +n/z=1 -n/x=1 synced ");
    fail_with(&w, PP_ERR_GONE);
    expect_wait(&w);
    expect_list(&w, NULL, 2); /* the next list is paged again */
    world_end(&w);
}

static void test_failed_page_begins_again(void **state)
{
    (void)state;
    world w;
    world_start(&w, false);
    expect_list(&w, NULL, 2);
    page(&w, LIST("10", "more1", ITEM("x", "5", "1") "," ITEM("y", "6", "1")));
    expect_list(&w, "more1", 2);
    fail_with(&w, PP_ERR_UNAVAILABLE);
    assert_int_equal(w.errors, 1);
    expect_wait(&w);
    expect_list(&w, NULL, 2);
    world_end(&w);
}

static void test_bad_objects_do_no_harm(void **state)
{
    (void)state;
    world w;
    reach_watching(&w);
    assert_int_equal(feed(&w, EVENT("MODIFIED", ITEM("x", "11", "bad")), NULL), 0);
    assert_int_equal(w.errors, 1);
    assert_string_equal(w.last_error.field, "data.a");
    assert_string_equal(pp_reflector_get(w.reflector, "n/x"), "1"); /* as it was */
    assert_int_equal(feed(&w, EVENT("MODIFIED", ITEM("y", "12", "hidden")), NULL), 0);
    assert_string_equal(w.log.data, "-n/y=1 "); /* left out by decode */
    assert_int_equal(feed(&w, EVENT("ADDED", "{\"metadata\":{}}"), NULL), 0);
    assert_int_equal(w.errors, 2);
    /* anybody may write a NUL into an annotation */
    assert_int_equal(feed(&w, EVENT("ADDED", ITEM("z", "13", "a\\u0000b")), NULL), 0);
    assert_string_equal(pp_reflector_get(w.reflector, "n/z"), "a");
    world_end(&w);
}

static void test_garbage_in_stream(void **state)
{
    (void)state;
    static const char *const lines[] = {"not json\n", "{}\n", "[]\n", "{\"type\":\"ADDED\"}\n",
                                        "{\"type\":1,\"object\":{}}\n"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        world w;
        pp_error err = {0};
        reach_watching(&w);
        assert_int_equal(feed(&w, lines[i], &err), -1);
        assert_int_equal(err.code, PP_ERR_UNAVAILABLE);
        world_end(&w);
    }
}

static void test_not_a_list(void **state)
{
    (void)state;
    world w;
    world_start(&w, false);
    expect_list(&w, NULL, 2);
    page(&w, "{\"items\":{}}");
    assert_int_equal(w.errors, 1);
    expect_wait(&w);
    expect_list(&w, NULL, 2);
    world_end(&w);
}

static void test_object_limit(void **state)
{
    (void)state;
    world w;
    reach_watching(&w);
    assert_int_equal(feed(&w,
                          EVENT("ADDED", ITEM("a", "11", "1")) EVENT("ADDED", ITEM("b", "12", "1"))
                              EVENT("ADDED", ITEM("c", "13", "1"))
                                  EVENT("ADDED", ITEM("d", "14", "1")),
                          NULL),
                     0);
    assert_int_equal(pp_reflector_count(w.reflector), 4);
    assert_int_equal(w.errors, 1); /* said once */
    assert_int_equal(w.last_error.code, PP_ERR_TOO_LARGE);
    world_end(&w);
}

/* Failures wait longer and longer; after two healthy minutes that begins anew. */
static void test_waits(void **state)
{
    (void)state;
    world w;
    world_start(&w, false);
    for (int i = 0; i < 10; i++) {
        expect_list(&w, NULL, 2);
        fail_with(&w, PP_ERR_UNAVAILABLE);
        assert_in_range(next(&w).wait_ms, i == 0 ? 800 : i > 5 ? 15000 : 1600, i ? 30000 : 1600);
        w.now += i < 9 ? 30 * S : 121 * S;
    }
    expect_list(&w, NULL, 2);
    fail_with(&w, PP_ERR_UNAVAILABLE);
    assert_in_range(next(&w).wait_ms, 800, 1600);
    world_end(&w);
}

static void test_stop_within_a_handler(void **state)
{
    (void)state;
    world w;
    reach_watching(&w);
    w.stop_at = "n/a";
    pp_error err = {0};
    assert_int_equal(
        feed(&w, EVENT("ADDED", ITEM("a", "11", "1")) EVENT("ADDED", ITEM("b", "12", "1")), &err),
        -1);
    assert_string_equal(w.log.data, "+n/a=1 ");
    world_end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_framing_at_every_split),
        cmocka_unit_test(test_framing_limit),
        cmocka_unit_test(test_framing_stops),
        cmocka_unit_test(test_recorded_stream_at_every_split),
        cmocka_unit_test(test_recorded_stream_byte_by_byte),
        cmocka_unit_test(test_streamed_list_refused),
        cmocka_unit_test(test_streamed_list_without_its_end),
        cmocka_unit_test(test_streamed_relist_deletes),
        cmocka_unit_test(test_events),
        cmocka_unit_test(test_bookmark_moves_the_version),
        cmocka_unit_test(test_gone_in_stream),
        cmocka_unit_test(test_gone_as_status),
        cmocka_unit_test(test_lost_connection_resumes),
        cmocka_unit_test(test_watch_that_never_works_relists),
        cmocka_unit_test(test_watch_that_ends_at_once_waits),
        cmocka_unit_test(test_paging),
        cmocka_unit_test(test_expired_page_asks_for_all),
        cmocka_unit_test(test_failed_page_begins_again),
        cmocka_unit_test(test_bad_objects_do_no_harm),
        cmocka_unit_test(test_garbage_in_stream),
        cmocka_unit_test(test_not_a_list),
        cmocka_unit_test(test_object_limit),
        cmocka_unit_test(test_waits),
        cmocka_unit_test(test_stop_within_a_handler),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
