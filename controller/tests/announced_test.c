#include "controller/announced.h"
#include "controller/tests/fixtures.h"

#define SPEC "{'selector': {'matchLabels': {'app': 'dlrm'}}, 'duration': '90s'}"

static const int64_t start = INT64_C(5000000000);

/* As a mutating review has it: without UID, time and, where it is generated, name. */
static int announce(pp_announced *a, const char *metadata, const char *spec)
{
    pp_error err = {0};
    PP_CLEANUP_JSON json_t *object =
        json_pack("{s:o, s:o}", "metadata", fixture_json(metadata), "spec", fixture_json(spec));
    return pp_announced_add(a, "ml", object, start, &err);
}

static int64_t until(const pp_announced *a, const char *ns, const char *labels, int64_t now)
{
    PP_CLEANUP_JSON json_t *object = labels ? fixture_json(labels) : NULL;
    return pp_announced_until(a, ns, object, now);
}

static void test_only_its_pods_wait_and_only_so_long(void **state)
{
    (void)state;
    pp_announced *a = pp_announced_new();
    assert_int_equal(until(a, "ml", "{'app': 'dlrm'}", start), 0);
    assert_int_equal(announce(a, "{'name': 'dlrm'}", SPEC), 0);
    assert_int_equal(until(a, "ml", "{'app': 'dlrm'}", start + 1), start + PP_ANNOUNCED_FOR);
    assert_int_equal(until(a, "ml", "{'app': 'other'}", start + 1), 0);
    assert_int_equal(until(a, "ml", NULL, start + 1), 0);
    assert_int_equal(until(a, "nlp", "{'app': 'dlrm'}", start + 1), 0);
    assert_int_equal(until(a, "ml", "{'app': 'dlrm'}", start + PP_ANNOUNCED_FOR), 0);
    pp_announced_free(a);
}

static void test_the_name_of_the_last_one(void **state)
{
    (void)state;
    pp_announced *a = pp_announced_new();
    PP_CLEANUP_JSON json_t *labels = fixture_json("{'app': 'dlrm'}");
    PP_CLEANUP_JSON json_t *others = fixture_json("{'app': 'other'}");
    assert_null(pp_announced_name(a, "ml", labels, start));
    assert_int_equal(announce(a, "{'name': 'dlrm'}", SPEC), 0);
    assert_string_equal(pp_announced_name(a, "ml", labels, start), "dlrm");
    assert_null(pp_announced_name(a, "ml", others, start));
    assert_null(pp_announced_name(a, "nlp", labels, start));
    assert_null(pp_announced_name(a, "ml", labels, start + PP_ANNOUNCED_FOR));
    pp_announced_free(a);
    a = pp_announced_new();
    assert_int_equal(announce(a, "{'generateName': 'dlrm-'}", SPEC), 0);
    assert_null(pp_announced_name(a, "ml", labels, start));
    pp_announced_free(a);
}

static void came(pp_announced *a, const char *name, const char *ns)
{
    pp_session *s = fixture_session(SPEC);
    free(s->name);
    free(s->namespace_);
    s->name = strdup(name);
    s->namespace_ = strdup(ns);
    pp_announced_came(a, s);
    (void)pp_session_free(s);
}

static void test_that_it_came_ends_the_wait(void **state)
{
    (void)state;
    pp_announced *a = pp_announced_new();
    assert_int_equal(announce(a, "{'name': 'dlrm'}", SPEC), 0);
    came(a, "dlrm", "nlp");
    came(a, "dlrm-2", "ml");
    assert_int_not_equal(until(a, "ml", "{'app': 'dlrm'}", start), 0);
    came(a, "dlrm", "ml");
    assert_int_equal(until(a, "ml", "{'app': 'dlrm'}", start), 0);

    assert_int_equal(announce(a, "{'generateName': 'dlrm-'}", SPEC), 0);
    assert_int_equal(announce(a, "{'generateName': 'dlrm-', 'name': ''}", SPEC), 0);
    came(a, "dlrm", "ml");
    came(a, "dlrm-x7f2q", "ml");
    assert_int_not_equal(until(a, "ml", "{'app': 'dlrm'}", start), 0); /* the second one's */
    came(a, "dlrm-p9d4k", "ml");
    assert_int_equal(until(a, "ml", "{'app': 'dlrm'}", start), 0);
    pp_announced_free(a);
}

/* What the API server will refuse, or what selects nothing yet, holds no pod up. */
static void test_nothing_waits_for_what_matches_no_pod(void **state)
{
    (void)state;
    pp_announced *a = pp_announced_new();
    assert_int_equal(announce(a, "{'name': 'dlrm'}", "{'duration': '90s'}"), -1);
    assert_int_equal(announce(a, "{'name': 'dlrm'}", "{'selector': {'matchLabels': 7}}"), -1);
    pp_error err = {0};
    PP_CLEANUP_JSON json_t *empty = json_object();
    assert_int_equal(pp_announced_add(a, "ml", empty, start, &err), -1);
    assert_int_equal(pp_announced_add(a, "ml", NULL, start, &err), -1);
    assert_int_equal(until(a, "ml", "{'app': 'dlrm'}", start), 0);
    pp_announced_free(a);
}

#define OTHERS "{'selector': {'matchLabels': {'app': 'x'}}}"

static void announce_many(pp_announced *a, const char *ns, int n, int64_t at)
{
    for (int i = 0; i < n; i++) {
        pp_error err = {0};
        char name[32];
        (void)snprintf(name, sizeof name, "more-%d", i);
        PP_CLEANUP_JSON json_t *object =
            json_pack("{s:{s:s}, s:o}", "metadata", "name", name, "spec", fixture_json(OTHERS));
        assert_int_equal(pp_announced_add(a, ns, object, at, &err), 0);
    }
}

/* A namespace that announces many sessions pushes its own oldest out, and nobody else's. */
static void test_a_namespace_has_its_share(void **state)
{
    (void)state;
    pp_announced *a = pp_announced_new();
    assert_int_equal(announce(a, "{'name': 'dlrm'}", SPEC), 0);
    announce_many(a, "nlp", 3 * PP_ANNOUNCED_MAX, start + 1);
    assert_int_not_equal(until(a, "ml", "{'app': 'dlrm'}", start + 1), 0);
    announce_many(a, "ml", PP_ANNOUNCED_EACH - 1, start + 1);
    assert_int_not_equal(until(a, "ml", "{'app': 'dlrm'}", start + 1), 0);
    assert_int_equal(announce(a, "{'name': 'last'}", "{'selector': {'matchLabels': {'app': 'y'}}}"),
                     0);
    assert_int_equal(until(a, "ml", "{'app': 'dlrm'}", start + 1), 0);
    assert_int_not_equal(until(a, "ml", "{'app': 'y'}", start + 1), 0);
    pp_announced_free(a);
}

static void test_the_oldest_make_room(void **state)
{
    (void)state;
    pp_announced *a = pp_announced_new();
    assert_int_equal(announce(a, "{'name': 'first'}", SPEC), 0);
    for (int i = 0; i < PP_ANNOUNCED_MAX / PP_ANNOUNCED_EACH; i++) {
        char ns[16];
        (void)snprintf(ns, sizeof ns, "ns-%d", i);
        assert_int_not_equal(until(a, "ml", "{'app': 'dlrm'}", start + 1), 0);
        announce_many(a, ns, PP_ANNOUNCED_EACH, start + 1);
    }
    assert_int_equal(until(a, "ml", "{'app': 'dlrm'}", start + 1), 0);
    /* Those whose time is over make room for others. */
    const int64_t later = start + 1 + PP_ANNOUNCED_FOR;
    announce_many(a, "ml", 1, later);
    assert_int_not_equal(until(a, "ml", "{'app': 'x'}", later), 0);
    pp_announced_free(a);
}

/* A create that is tried again, or refused for its name. */
static void test_one_name_is_noted_once(void **state)
{
    (void)state;
    pp_announced *a = pp_announced_new();
    assert_int_equal(announce(a, "{'name': 'dlrm'}", SPEC), 0);
    for (int i = 0; i < PP_ANNOUNCED_EACH + 1; i++)
        assert_int_equal(announce(a, "{'name': 'other'}", OTHERS), 0);
    assert_int_not_equal(until(a, "ml", "{'app': 'dlrm'}", start), 0);
    pp_announced_free(a);
}

/* A session that was given its name ends no wait for one whose name is generated. */
static void test_a_prefix_is_of_generated_names(void **state)
{
    (void)state;
    pp_announced *a = pp_announced_new();
    assert_int_equal(announce(a, "{'generateName': 'dlrm-'}", SPEC), 0);
    came(a, "dlrm-nightly", "ml");
    assert_int_not_equal(until(a, "ml", "{'app': 'dlrm'}", start), 0);
    assert_int_equal(announce(a, "{'name': 'dlrm-abcde'}", OTHERS), 0);
    came(a, "dlrm-abcde", "ml"); /* the one that has this name */
    assert_int_not_equal(until(a, "ml", "{'app': 'dlrm'}", start), 0);
    assert_int_equal(until(a, "ml", "{'app': 'x'}", start), 0);
    pp_announced_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_its_pods_wait_and_only_so_long),
        cmocka_unit_test(test_the_name_of_the_last_one),
        cmocka_unit_test(test_that_it_came_ends_the_wait),
        cmocka_unit_test(test_nothing_waits_for_what_matches_no_pod),
        cmocka_unit_test(test_a_namespace_has_its_share),
        cmocka_unit_test(test_the_oldest_make_room),
        cmocka_unit_test(test_one_name_is_noted_once),
        cmocka_unit_test(test_a_prefix_is_of_generated_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
