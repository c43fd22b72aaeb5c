/* Which batches are taken from whom. */
#include "controller/batch_rules.h"
#include "controller/tests/fixtures.h"

#include <string.h>

static pp_session *session_in(pp_session_phase phase)
{
    pp_session *session = fixture_session("{'selector': {'matchLabels': {'app': 'dlrm'}}}");
    assert_int_equal(session->invalid.code, PP_OK);
    session->phase = phase;
    return session;
}

static void expect(pp_batch_claim batch, pp_error_code code, const char *why)
{
    pp_error err = {0};
    if (code == PP_OK) {
        assert_int_equal(pp_batch_check(&batch, &err), 0);
        return;
    }
    assert_int_equal(pp_batch_check(&batch, &err), -1);
    assert_int_equal(err.code, code);
    assert_string_equal(err.message, why);
    assert_true(strcmp(err.field, "session") == 0 || strcmp(err.field, "stretch.dwell") == 0);
}

#define GONE PP_ERR_GONE, "the pod is gone"
#define NOT_ITS PP_ERR_DENIED, "the pod is not this session's"
#define ENDED PP_ERR_GONE, "the session has ended"

static void test_of_a_live_session(void **state)
{
    (void)state;
    pp_session *s = session_in(PP_SESSION_COLLECTING);
    expect((pp_batch_claim){.pod_there = true, .eligible = true, .session = s}, PP_OK, NULL);
    expect((pp_batch_claim){.eligible = true, .session = s}, GONE);
    expect((pp_batch_claim){.pod_there = true, .was_of = true, .session = s}, NOT_ITS);
    expect((pp_batch_claim){.pod_there = true, .eligible = true, .session = s, .end_stored = true},
           ENDED);
    expect((pp_batch_claim){.pod_there = true, .eligible = true, .session = s, .replays = true},
           PP_ERR_INVALID, "the session asks for no replays");
    (void)pp_session_free(s);
}

static void test_of_one_that_ends(void **state)
{
    (void)state;
    pp_session *finishing = session_in(PP_SESSION_FINISHING),
               *over = session_in(PP_SESSION_SUCCEEDED);
    expect((pp_batch_claim){.pod_there = true, .eligible = true, .session = finishing}, PP_OK,
           NULL);
    expect((pp_batch_claim){.pod_there = true, .eligible = true, .session = over}, ENDED);
    (void)pp_session_free(finishing);
    (void)pp_session_free(over);
}

/* A stranger is not told that there was such a session. */
static void test_of_none(void **state)
{
    (void)state;
    expect((pp_batch_claim){.pod_there = true, .was_of = true}, ENDED);
    expect((pp_batch_claim){.pod_there = true}, NOT_ITS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_of_a_live_session),
        cmocka_unit_test(test_of_one_that_ends),
        cmocka_unit_test(test_of_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
