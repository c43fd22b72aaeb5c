/* Events for people, many at a time: all are written, soon, and none for another's sake is not. */
#include "operator/kube/events.h"

#include "common/cleanup.h"
#include "common/tests/cmocka_all.h"
#include "common/text.h"
#include "operator/tests/api_server.h"

#include <stdio.h>

enum { ROOM = 4096, MANY = 100 };

static void tell(api_server *api, int number, const char *why)
{
    char name[32];
    (void)snprintf(name, sizeof name, "pod-%d", number);
    const pp_kube_object_ref ref = {.api_version = "v1", .kind = "Pod", .ns = "ml", .name = name};
    pp_kube_event(api->op.recorder, &ref, PP_KUBE_EVENT_WARNING, "ImageNotPulled", "Start", "%s",
                  why);
}

typedef struct wanted {
    const pp_kube_recorder *recorder;
    uint64_t count;
} wanted;

static bool are_sent(void *user)
{
    const wanted *w = user;
    return pp_kube_recorder_get_stats(w->recorder).sent == w->count;
}

/* Runs until so many are written. */
static void wait_for(api_server *api, uint64_t count)
{
    wanted w = {api->op.recorder, count};
    assert_true(api_server_run(api, are_sent, &w));
}

/* Not only as many as are under way at once: the rest waits for an answer, and for no flush, which
 * would bring the repeat. */
static void test_many_are_written_at_once(void **state)
{
    api_server *api = *state;
    tell(api, 0, "why");
    for (int i = 0; i < MANY; i++)
        tell(api, i, "why");
    wait_for(api, MANY);
    assert_int_equal(api_server_times(api, "POST "), MANY);
    assert_int_equal(api_server_times(api, "PATCH "), 0);
}

/* What is written leaves its place to what is not. */
static void test_those_that_are_written_make_room(void **state)
{
    api_server *api = *state;
    pp_kube_client_set_rate(api->op.kube, 1e6);
    for (int i = 0; i <= ROOM; i++)
        tell(api, i, "why");
    assert_int_equal(pp_kube_recorder_get_stats(api->op.recorder).dropped, 1);
    wait_for(api, ROOM);
    for (int i = ROOM; i < ROOM + MANY; i++)
        tell(api, i, "why");
    wait_for(api, ROOM + MANY);
    assert_int_equal(pp_kube_recorder_get_stats(api->op.recorder).dropped, 1);
}

/* All of common/tests/hostile.json: what a pod says of itself is in Events, which a terminal shows.
 */
static void test_hostile_texts_are_tamed(void **state)
{
    api_server *api = *state;
    PP_CLEANUP_JSON json_t *names =
        json_load_file(PP_SOURCE_DIR "/common/tests/hostile.json", 0, NULL);
    assert_true(json_array_size(names) > 50);
    for (size_t i = 0; i < json_array_size(names); i++)
        tell(api, (int)i, json_string_value(json_array_get(names, i)));
    wait_for(api, json_array_size(names));
    for (int i = 0; i < api->count; i++) {
        PP_CLEANUP_JSON json_t *event = json_loads(api->requests[i].body, 0, NULL);
        const char *note = json_string_value(json_object_get(event, "note"));
        assert_non_null(note);
        for (const char *at = note; *at; at++)
            assert_false(pp_text_is_control(at));
    }
}

#define ON_SERVER(test) cmocka_unit_test_setup_teardown(test, api_server_setup, api_server_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_SERVER(test_many_are_written_at_once),
        ON_SERVER(test_those_that_are_written_make_room),
        ON_SERVER(test_hostile_texts_are_tamed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
