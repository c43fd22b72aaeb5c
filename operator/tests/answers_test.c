/* Answers that are kept. */
#include "common/tests/cmocka_all.h"
#include "operator/results/answers.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 100 };

static char *text_of(char with, size_t len)
{
    char *text = malloc(len + 1);
    memset(text, with, len);
    text[len] = '\0';
    return text;
}

/** Of two bytes. */
static pp_buf request(int number)
{
    static char texts[10][2];
    texts[number][0] = (char)('0' + number);
    return (pp_buf){.data = texts[number], .len = sizeof texts[number]};
}

/** Put and released at once, as by somebody who has been answered. */
static void put(pp_answers *all, int number, const char *version, size_t len)
{
    const pp_buf asked = request(number);
    pp_answer *made = pp_answers_put(all, &asked, version, text_of('a', len), len);
    assert_non_null(made);
    assert_int_equal(made->len, len);
    pp_answer_release(made);
}

static pp_answer *find(pp_answers *all, int number)
{
    const pp_buf asked = request(number);
    return pp_answers_find(all, &asked);
}

static bool is_kept(pp_answers *all, int number)
{
    pp_answer *found = find(all, number);
    pp_answer_release(found);
    return found;
}

static void the_same_is_found(void **state)
{
    pp_answers *all = pp_answers_new(MOST);
    (void)state;
    assert_null(find(all, 1));
    put(all, 1, "v1", 10);
    pp_answer *found = find(all, 1);
    assert_string_equal(found->version, "v1");
    assert_string_equal(found->body, "aaaaaaaaaa");
    assert_null(find(all, 2));
    pp_answer_release(found);
    pp_answers_free(all);
}

/* Who is being answered still has the old one; it is gone for all others. */
static void a_new_version_takes_its_place(void **state)
{
    pp_answers *all = pp_answers_new(MOST);
    (void)state;
    put(all, 1, "v1", 10);
    pp_answer *old = find(all, 1);
    put(all, 1, "v2", 5);
    pp_answer *now = find(all, 1);
    assert_string_equal(now->version, "v2");
    assert_string_equal(old->body, "aaaaaaaaaa");
    pp_answer_release(now);
    pp_answers_free(all);
    assert_string_equal(old->body, "aaaaaaaaaa");
    pp_answer_release(old);
}

static void those_go_that_nobody_asks_for(void **state)
{
    pp_answers *all = pp_answers_new(MOST);
    (void)state;
    for (int i = 1; i <= 4; i++)
        put(all, i, "v", 23);
    assert_true(is_kept(all, 1));
    put(all, 5, "v", 18);
    assert_false(is_kept(all, 2));
    for (int i = 1; i <= 5; i++)
        assert_true(i == 2 || is_kept(all, i));
    put(all, 6, "v", 23); /* in place of the one whose request came first */
    assert_false(is_kept(all, 1));
    assert_true(is_kept(all, 3) && is_kept(all, 6));
    pp_answers_free(all);
}

static void what_is_not_kept(void **state)
{
    pp_answers *all = pp_answers_new(MOST);
    (void)state;
    put(all, 1, "", 10);
    put(all, 2, "v", MOST / 4 - 1);
    assert_false(is_kept(all, 1) || is_kept(all, 2));
    put(all, 3, "v", 10);
    put(all, 3, "v2", MOST); /* nor what it takes the place of */
    assert_false(is_kept(all, 3));
    const pp_buf asked = request(4);
    assert_null(pp_answers_put(all, &asked, "v", NULL, 0));
    pp_answer_release(NULL);
    pp_answers_free(all);
    pp_answers_free(NULL);
}

/* Texts that one number stands for (FNV-1a, found by search) are two requests. */
static void requests_of_one_number(void **state)
{
    static char plain[] = "/api/v1/namespaces/team/sessions/run/timeline",
                made[] =
                    "/api/v1/namespaces/team/sessions/run/timeline\0pod=mcoc1qrfcvx211yd0no9wiqq";
    const pp_buf first = {.data = plain, .len = sizeof plain},
                 other = {.data = made, .len = sizeof made};
    pp_answers *all = pp_answers_new(MOST * MOST);
    (void)state;
    pp_answer_release(pp_answers_put(all, &other, "v", text_of('a', 10), 10));
    assert_null(pp_answers_find(all, &first));
    pp_answer_release(pp_answers_put(all, &first, "v", text_of('b', 10), 10));
    pp_answer *found = pp_answers_find(all, &other);
    assert_string_equal(found->body, "aaaaaaaaaa");
    pp_answer_release(found);
    pp_answers_free(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_is_found),
        cmocka_unit_test(a_new_version_takes_its_place),
        cmocka_unit_test(those_go_that_nobody_asks_for),
        cmocka_unit_test(what_is_not_kept),
        cmocka_unit_test(requests_of_one_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
