/* Whose tokens were good lately. */
#include "common/tests/cmocka_all.h"
#include "operator/http_server/known_tokens.h"

#include <string.h>

#define SECOND INT64_C(1000000000)

static const unsigned char *digest(unsigned number)
{
    static unsigned char bytes[KNOWN_TOKEN_DIGEST];
    (void)memset(bytes, 0, sizeof bytes);
    (void)memcpy(bytes, &number, sizeof number);
    return bytes;
}

static void test_a_token_is_known_for_a_minute(void **state)
{
    (void)state;
    known_tokens *k = known_tokens_new();
    assert_int_equal(known_tokens_find(k, digest(1), 0), 0);
    known_tokens_keep(k, digest(1), 7, 0);
    known_tokens_keep(k, digest(2), 8, 0);
    assert_int_equal(known_tokens_find(k, digest(1), 59 * SECOND), 7);
    known_tokens_keep(k, digest(1), 7, 59 * SECOND);
    assert_int_equal(known_tokens_find(k, digest(1), 61 * SECOND), 7);
    assert_int_equal(known_tokens_find(k, digest(2), 61 * SECOND), 0);
    assert_int_equal(known_tokens_count(k), 1);
    known_tokens_free(k);
}

static void test_one_that_is_refused_is_known_no_more(void **state)
{
    (void)state;
    known_tokens *k = known_tokens_new();
    known_tokens_keep(k, digest(1), 7, 0);
    known_tokens_drop(k, digest(1));
    known_tokens_drop(k, digest(1));
    assert_int_equal(known_tokens_find(k, digest(1), 0), 0);
    known_tokens_free(k);
}

static void test_there_is_a_bound(void **state)
{
    (void)state;
    known_tokens *k = known_tokens_new();
    for (unsigned i = 0; i < 2 * MAX_KNOWN_TOKENS; i++)
        known_tokens_keep(k, digest(i), 1, i);
    assert_int_equal(known_tokens_count(k), MAX_KNOWN_TOKENS);
    assert_int_equal(known_tokens_find(k, digest(0), 0), 0);
    assert_int_equal(known_tokens_find(k, digest(2 * MAX_KNOWN_TOKENS - 1), 0), 1);
    known_tokens_free(k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_token_is_known_for_a_minute),
        cmocka_unit_test(test_one_that_is_refused_is_known_no_more),
        cmocka_unit_test(test_there_is_a_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
