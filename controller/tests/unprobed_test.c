#include "controller/pods/unprobed.h"

#include "controller/tests/fixtures.h"

static pp_unprobed_owner owner(const char *uid, int64_t until_ns, const json_t *labels)
{
    pp_unprobed_owner o = {.until_ns = until_ns, .ns = "ml", .labels = labels};
    (void)snprintf(o.uid, sizeof o.uid, "%s", uid);
    (void)snprintf(o.what, sizeof o.what, "Job %s", uid);
    (void)snprintf(o.refusal.reason, sizeof o.refusal.reason, "NotStarted");
    return o;
}

static void add(pp_unprobed *u, const char *uid, int64_t until_ns, const json_t *labels,
                int64_t now_ns)
{
    const pp_unprobed_owner o = owner(uid, until_ns, labels);
    assert_int_equal(pp_unprobed_add(u, &o, now_ns), 0);
}

static void test_for_a_while(void **state)
{
    (void)state;
    pp_unprobed *u = pp_unprobed_new();
    add(u, "a", 100, NULL, 10);
    assert_string_equal(pp_unprobed_find(u, "ml", "a", 50)->refusal.reason, "NotStarted");
    assert_null(pp_unprobed_find(u, "ml", "a", 100));
    assert_null(pp_unprobed_find(u, "ml", "b", 50));
    assert_null(pp_unprobed_find(u, "ml", NULL, 50));
    add(u, "a", 90, NULL, 20); /* an end that is earlier is none */
    assert_non_null(pp_unprobed_find(u, "ml", "a", 95));
    add(u, "a", 200, NULL, 30);
    assert_non_null(pp_unprobed_find(u, "ml", "a", 150));
    assert_int_equal(pp_unprobed_find(u, "ml", "a", 150)->since_ns, 10);
    assert_int_equal(pp_unprobed_find(u, "ml", "a", 150)->told_ns, 30);
    add(u, "a", 300, NULL, 250); /* after its end it begins anew */
    assert_int_equal(pp_unprobed_find(u, "ml", "a", 260)->since_ns, 250);
    pp_unprobed_sweep(u, 299);
    assert_int_equal(pp_unprobed_count(u), 1);
    pp_unprobed_sweep(u, 300);
    assert_int_equal(pp_unprobed_count(u), 0);
    pp_unprobed_free(u);
    pp_unprobed_free(NULL);
}

/* What pods of one namespace say of their controller is nothing to another's. */
static void test_each_namespace_has_its_own(void **state)
{
    (void)state;
    pp_unprobed *u = pp_unprobed_new();
    pp_unprobed_owner other = owner("a", 100, NULL);
    (void)snprintf(other.ns, sizeof other.ns, "other");
    assert_int_equal(pp_unprobed_add(u, &other, 10), 0);
    assert_null(pp_unprobed_find(u, "ml", "a", 50));
    add(u, "a", 60, NULL, 20);
    assert_int_equal(pp_unprobed_find(u, "other", "a", 50)->since_ns, 10);
    assert_int_equal(pp_unprobed_find(u, "ml", "a", 50)->since_ns, 20);
    assert_null(pp_unprobed_find(u, "ml", "a", 70));
    pp_unprobed_free(u);
}

static void test_of_a_session(void **state)
{
    (void)state;
    pp_session *s = fixture_session("{'selector': {'matchLabels': {'app': 'dlrm'}}}");
    PP_CLEANUP_JSON json_t *labels = fixture_json("{'app': 'dlrm'}");
    PP_CLEANUP_JSON json_t *others = fixture_json("{'app': 'x'}");
    pp_unprobed *u = pp_unprobed_new();
    add(u, "a", 100, labels, 10);
    add(u, "b", 100, labels, 20);
    add(u, "c", 100, others, 30);
    add(u, "d", 100, NULL, 40);
    pp_unprobed_owner elsewhere = owner("e", 100, labels);
    elsewhere.ns[0] = 'x';
    assert_int_equal(pp_unprobed_add(u, &elsewhere, 50), 0);
    assert_string_equal(pp_unprobed_of(u, s, 0)->uid, "b");
    add(u, "a", 100, NULL, 60); /* its labels are kept */
    assert_string_equal(pp_unprobed_of(u, s, 0)->uid, "a");
    assert_null(pp_unprobed_of(u, s, 61));
    pp_unprobed_free(u);
    (void)pp_session_free(s);
}

static void test_no_more_than_there_is_room_for(void **state)
{
    (void)state;
    pp_unprobed *u = pp_unprobed_new();
    char uid[32];
    for (int i = 0; i < PP_UNPROBED_MAX + 10; i++) {
        (void)snprintf(uid, sizeof uid, "u%d", i);
        add(u, uid, 1000 + i, NULL, 10);
    }
    assert_int_equal(pp_unprobed_count(u), PP_UNPROBED_MAX);
    assert_null(pp_unprobed_find(u, "ml", "u9", 20));
    assert_non_null(pp_unprobed_find(u, "ml", "u10", 20));
    assert_non_null(pp_unprobed_find(u, "ml", uid, 20));
    pp_unprobed_free(u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_for_a_while),
        cmocka_unit_test(test_each_namespace_has_its_own),
        cmocka_unit_test(test_of_a_session),
        cmocka_unit_test(test_no_more_than_there_is_room_for),
    };
    return cmocka_run_group_tests_name("unprobed", tests, NULL, NULL);
}
