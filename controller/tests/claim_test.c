#include "controller/claim.h"
#include "controller/tests/fixtures.h"

static pp_claim *claim_of(const char *ns, const char *uid, const char *created, const char *watched)
{
    json_t *labels = NULL, *annotations = NULL;
    assert_int_equal(pp_claim_marks(watched, &labels, &annotations, NULL), 0);
    PP_CLEANUP_JSON json_t *lease = json_pack(
        "{s:{s:s, s:s, s:s, s:s, s:o, s:o}}", "metadata", "namespace", ns, "name", "precisionprobe",
        "uid", uid, "creationTimestamp", created, "labels", labels, "annotations", annotations);
    pp_claim *claim = pp_claim_decode(lease, NULL);
    assert_non_null(claim);
    assert_string_equal(claim->watched, watched);
    return claim;
}

/* Of two whose namespaces overlap one goes before, and both agree on which. */
static void test_order(void **state)
{
    (void)state;
    static const struct {
        const char *first, *first_watched, *second, *second_watched;
        const char *first_uid, *second_uid;
        bool before;
    } cases[] = {
        {"2026-01-21T12:00:00Z", "", "2026-01-21T12:00:01Z", "", "b", "a", true},
        {"2026-01-21T12:00:00Z", "", "2026-01-21T12:00:00Z", "", "a", "b", true},
        {"2026-01-21T12:00:00Z", "ml", "2026-01-21T12:00:01Z", "", "b", "a", true},
        {"2026-01-21T12:00:00Z", "", "2026-01-21T12:00:01Z", "ml", "b", "a", true},
        {"2026-01-21T12:00:00Z", "ml", "2026-01-21T12:00:01Z", "ml", "b", "a", true},
        {"2026-01-21T12:00:00Z", "ml", "2026-01-21T12:00:01Z", "web", "b", "a", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        pp_claim *a = claim_of("one", cases[i].first_uid, cases[i].first, cases[i].first_watched);
        pp_claim *b =
            claim_of("two", cases[i].second_uid, cases[i].second, cases[i].second_watched);
        if (pp_claim_goes_before(a, b) != cases[i].before || pp_claim_goes_before(b, a))
            fail_msg("case %zu", i);
        assert_false(pp_claim_goes_before(a, a));
        pp_claim_free(a);
        pp_claim_free(b);
    }
}

static void test_decode(void **state)
{
    (void)state;
    PP_CLEANUP_JSON json_t *bare =
        fixture_json("{'metadata': {'namespace': 'n', 'name': 'l', 'uid': 'u'}}");
    pp_claim *claim = pp_claim_decode(bare, NULL);
    assert_string_equal(claim->watched, ""); /* all */
    pp_claim_free(claim);
    PP_CLEANUP_JSON json_t *none = fixture_json("{'metadata': {'name': 'l', 'uid': 'u'}}");
    pp_error err = {0};
    assert_null(pp_claim_decode(none, &err));
    assert_int_equal(err.code, PP_ERR_INVALID);
}

static void see(pp_claim_sight *sight, const char *uid, const char *renewed, int64_t second)
{
    PP_CLEANUP_JSON json_t *lease =
        json_pack("{s:{s:s, s:s, s:s}, s:{s:s}}", "metadata", "namespace", "n", "name", "l", "uid",
                  uid, "spec", "renewTime", renewed);
    pp_claim *claim = pp_claim_decode(lease, NULL);
    assert_non_null(claim);
    pp_claim_see(sight, claim, second * INT64_C(1000000000));
    pp_claim_free(claim);
}

static bool is_abandoned(const pp_claim_sight *sight, int64_t second)
{
    return pp_claim_abandoned(sight, second * INT64_C(1000000000));
}

/* Its own stamps are as old or as new as they like: when they change counts, here. */
static void test_abandoned(void **state)
{
    (void)state;
    pp_claim_sight sight = {{0}, 0, 0};
    assert_false(is_abandoned(&sight, 1000));
    see(&sight, "a", "2020-01-01T00:00:00.000000Z", 1000);
    for (int i = 1; i < PP_CLAIM_MISSED; i++)
        pp_claim_miss(&sight);
    assert_false(is_abandoned(&sight, 1200)); /* it may be we who see nothing */
    pp_claim_miss(&sight);
    assert_false(is_abandoned(&sight, 1119));
    assert_true(is_abandoned(&sight, 1120));
    see(&sight, "a", "2020-01-01T00:00:00.000000Z", 1130); /* listed again, and no other */
    assert_true(is_abandoned(&sight, 1130));
    see(&sight, "a", "2020-01-01T00:00:02.000000Z", 1131);
    assert_false(is_abandoned(&sight, 1131));
    for (int i = 0; i < PP_CLAIM_MISSED; i++)
        pp_claim_miss(&sight);
    assert_true(is_abandoned(&sight, 1251));
    see(&sight, "b", "2020-01-01T00:00:02.000000Z", 1251); /* another's, of the same name */
    assert_false(is_abandoned(&sight, 1400));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_decode),
        cmocka_unit_test(test_abandoned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
