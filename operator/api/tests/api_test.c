/* Paths, queries, cursors, entity tags and documents of the HTTP API, without a server. */
#include "common/cleanup.h"
#include "common/tests/cmocka_all.h"
#include "operator/api/etag.h"
#include "operator/api/page.h"
#include "operator/api/request.h"
#include "operator/api/value.h"

#include <math.h>
#include <string.h>

/* ---- requests ---- */

/** `query`: one part, or NULL. */
static int parse(const char *path, const char *query, pp_api_request *ret, pp_api_problem *problem)
{
    pp_strings parts = {0};
    *problem = (pp_api_problem){0};
    if (query)
        assert_int_equal(pp_strings_add(&parts, query, NULL), 0);
    const int rc = pp_api_parse(path, &parts, ret, problem);
    pp_strings_free(&parts);
    return rc;
}

static void paths_are_read(void **state)
{
    static const struct {
        const char *path;
        pp_api_kind kind;
        const char *ns, *name;
    } all[] = {
        {"/api/v1/openapi.yaml", PP_API_OPENAPI, "", ""},
        {"/api/v1/sessions", PP_API_SESSIONS, "", ""},
        {"/api/v1/namespaces/ml/sessions", PP_API_SESSIONS, "ml", ""},
        {"/api/v1/namespaces/ml/sessions/a b\xc3\xa9", PP_API_SESSION, "ml", "a b\xc3\xa9"},
        {"/api/v1/namespaces/ml/sessions/N", PP_API_SESSION, "ml", "N"},
        {"/api/v1/namespaces/ml/sessions/layers/layers", PP_API_LAYERS, "ml", "layers"},
        {"/api/v1/namespaces/ml/sessions/s/timeline", PP_API_TIMELINE, "ml", "s"},
        {"/api/v1/namespaces/ml/sessions/s/ranks/items", PP_API_RANK_ITEMS, "ml", "s"},
        {"/api/v1/namespaces/ml/patterns", PP_API_PATTERNS, "ml", ""},
        {"/api/v1/namespaces/ml/patterns/job-dlrm", PP_API_PATTERN, "ml", "job-dlrm"},
    };
    pp_api_request r;
    pp_api_problem problem;
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        assert_int_equal(parse(all[i].path, NULL, &r, &problem), 0);
        assert_int_equal(r.kind, all[i].kind);
        assert_string_equal(r.ns, all[i].ns);
        assert_string_equal(r.name, all[i].name);
        assert_int_equal(r.limit, PP_API_DEFAULT_LIMIT);
        assert_int_equal(r.cursor.n, 0);
    }
}

static void paths_that_are_none(void **state)
{
    static const struct {
        const char *path;
        pp_api_trouble trouble;
        const char *field;
    } all[] = {
        {"/api/v1", PP_API_NOT_FOUND, ""},
        {"/api/v1/", PP_API_NOT_FOUND, ""},
        {"/api/v1/sessions/s", PP_API_NOT_FOUND, ""},
        {"/api/v1/namespaces/ml", PP_API_NOT_FOUND, ""},
        {"/api/v1/namespaces/ml/sessions/s/", PP_API_NOT_FOUND, ""},
        {"/api/v1/namespaces/ml/sessions/s/layers/x", PP_API_NOT_FOUND, ""},
        {"/api/v1/a/b/c/d/e/f/g/h", PP_API_NOT_FOUND, ""},
        {"/api/v1//sessions", PP_API_NOT_FOUND, ""},
        {"/api/v1/namespaces//sessions", PP_API_INVALID, "namespace"},
        {"/api/v1/namespaces/*/sessions", PP_API_INVALID, "namespace"},
        {"/api/v1/namespaces/../sessions", PP_API_INVALID, "namespace"},
        {"/api/v1/namespaces/ml'--/sessions", PP_API_INVALID, "namespace"},
        {"/api/v1/namespaces/ml/sessions/", PP_API_INVALID, "session"},
        {"/api/v1/namespaces/ml/sessions/a\nb", PP_API_INVALID, "session"},
        {"/api/v1/namespaces/ml/sessions/\xff", PP_API_INVALID, "session"},
        {"/api/v1/namespaces/ml/sessions/\xed\xa0\x80", PP_API_INVALID, "session"},
        {"/api/v1/namespaces/ml/sessions/\xc0\x80", PP_API_INVALID, "session"},
    };
    pp_api_request r;
    pp_api_problem problem;
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (parse(all[i].path, NULL, &r, &problem) == 0 || problem.trouble != all[i].trouble ||
            strcmp(problem.field, all[i].field) != 0)
            fail_msg("%s: %d %s", all[i].path, problem.trouble, problem.field);
    }
    char path[2 * PP_API_MAX_PATH] = "/api/v1/sessions";
    memset(path + strlen(path), 'x', sizeof path - 1 - strlen(path));
    assert_int_equal(parse(path, NULL, &r, &problem), -1);
    assert_int_equal(problem.trouble, PP_API_URI_TOO_LONG);
}

static void queries(void **state)
{
    static const char path[] = "/api/v1/namespaces/ml/sessions/s/timeline";
    static const struct {
        const char *text, *field;
    } wrong[] = {{"limit=", "limit"},
                 {"limit=+5", "limit"},
                 {"limit= 5", "limit"},
                 {"limit=5.0", "limit"},
                 {"limit=99999999999999999999", "limit"},
                 {"limit", "limit"},
                 {"Limit=5", "Limit"},
                 {"process=-1", "process"},
                 {"process=65536", "process"},
                 {"pod=", "pod"},
                 {"uid=\x7f", "uid"},
                 {"x\x01=1", "?"},
                 {"=1", ""},
                 {"continue=", "continue"},
                 {"continue=A", "continue"}};
    pp_api_request r;
    pp_api_problem problem;
    (void)state;
    assert_int_equal(parse(path, "limit=5000", &r, &problem), 0);
    assert_int_equal(r.limit, 5000);
    assert_int_equal(parse(path, "pod=p-1", &r, &problem), 0);
    assert_string_equal(r.pod, "p-1");
    assert_int_equal(parse(path, "process=0", &r, &problem), 0);
    assert_int_equal(r.process, 0);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        if (parse(path, wrong[i].text, &r, &problem) == 0 || problem.trouble != PP_API_INVALID ||
            strcmp(problem.field, wrong[i].field) != 0)
            fail_msg("%s: %s", wrong[i].text, problem.field);
    }
    /* What another path has, this one has not. */
    assert_int_equal(parse("/api/v1/namespaces/ml/sessions/s/layers", "pod=p", &r, &problem), -1);
    assert_string_equal(problem.field, "pod");
    assert_int_equal(parse("/api/v1/sessions", "uid=u", &r, &problem), -1);
    assert_int_equal(parse("/api/v1/openapi.yaml", "limit=1", &r, &problem), -1);
}

/* ---- cursors ---- */

static void make_cursor(char *out, size_t size, const char *uid)
{
    const pp_api_key keys[] = {{true, 0, uid},           {true, 0, "pod\xc3\xa9"},
                               {false, INT64_MIN, NULL}, {true, 0, ""},
                               {true, 0, "forward"},     {true, 0, "k'); DROP TABLE session; --"}};
    pp_buf text;
    pp_buf_init(&text, PP_API_MAX_CURSOR);
    assert_int_equal(pp_api_cursor_write(PP_API_KERNELS, keys, 6, &text, NULL), 0);
    (void)snprintf(out, size, "%s", text.data);
    pp_buf_done(&text);
}

static void cursors(void **state)
{
    char text[1024], query[1100];
    pp_api_cursor c;
    pp_api_request r;
    pp_api_problem problem;
    (void)state;
    make_cursor(text, sizeof text, "u-1");
    assert_int_equal(
        strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"),
        strlen(text));
    assert_int_equal(pp_api_cursor_read(PP_API_KERNELS, text, &c, NULL), 0);
    assert_int_equal(c.n, 6);
    assert_string_equal(c.keys[0].text, "u-1");
    assert_string_equal(c.keys[1].text, "pod\xc3\xa9");
    assert_true(c.keys[2].number == INT64_MIN);
    assert_string_equal(c.keys[5].text, "k'); DROP TABLE session; --");
    (void)snprintf(query, sizeof query, "continue=%s", text);
    assert_int_equal(parse("/api/v1/namespaces/ml/sessions/s/kernels", query, &r, &problem), 0);
    assert_string_equal(r.uid, "u-1");
    /* Of another path, cut, longer, or with other letters it is none. */
    assert_int_equal(pp_api_cursor_read(PP_API_LAYERS, text, &c, NULL), -1);
    for (size_t n = strlen(text) - 1; n > 0; n--) {
        char cut[1024];
        (void)snprintf(cut, sizeof cut, "%.*s", (int)n, text);
        assert_int_equal(pp_api_cursor_read(PP_API_KERNELS, cut, &c, NULL), -1);
    }
    memcpy(text + strlen(text), "AAAA", 5);
    assert_int_equal(pp_api_cursor_read(PP_API_KERNELS, text, &c, NULL), -1);
    assert_int_equal(pp_api_cursor_read(PP_API_KERNELS, "a+b/", &c, NULL), -1);
}

/* Whatever bits are other, it is refused or reads as texts that are UTF-8; nothing breaks. */
static void cursors_that_were_changed(void **state)
{
    char text[1024];
    pp_api_cursor c;
    (void)state;
    make_cursor(text, sizeof text, "u-1");
    for (size_t i = 0; text[i]; i++) {
        const char was = text[i];
        for (int letter = '-'; letter <= 'z'; letter++) {
            text[i] = (char)letter;
            if (pp_api_cursor_read(PP_API_KERNELS, text, &c, NULL) < 0)
                continue;
            for (size_t k = 0; k < c.n; k++)
                assert_true(!c.keys[k].is_text || pp_api_is_utf8(c.keys[k].text));
        }
        text[i] = was;
    }
}

static void a_cursor_of_another_session(void **state)
{
    char text[1024];
    pp_strings parts = {0};
    pp_api_request r;
    pp_api_problem problem = {0};
    (void)state;
    make_cursor(text, sizeof text, "u-1");
    char query[1100];
    (void)snprintf(query, sizeof query, "continue=%s", text);
    assert_int_equal(pp_strings_add(&parts, "uid=u-2", NULL), 0);
    assert_int_equal(pp_strings_add(&parts, query, NULL), 0);
    assert_int_equal(pp_api_parse("/api/v1/namespaces/ml/sessions/s/kernels", &parts, &r, &problem),
                     -1);
    assert_string_equal(problem.field, "continue");
    pp_strings_free(&parts);
}

/* ---- values ---- */

static void expect_real(double value, const char *text)
{
    pp_buf out;
    pp_buf_init(&out, 100);
    assert_int_equal(pp_api_write_real(&out, value, NULL), 0);
    assert_string_equal(out.data, text);
    pp_buf_done(&out);
}

static void numbers(void **state)
{
    (void)state;
    expect_real(0.1, "0.1");
    expect_real(0.1 + 0.2, "0.30000000000000004");
    expect_real(1.0 / 3, "0.3333333333333333");
    expect_real(5, "5");
    expect_real(1e300, "1e+300");
    expect_real(5e-324, "4.94065645841247e-324");
    expect_real((double)NAN, "null");
    expect_real((double)INFINITY, "null");
    expect_real(-(double)INFINITY, "null");
}

static void texts(void **state)
{
    pp_buf out;
    (void)state;
    pp_buf_init(&out, 1000);
    assert_int_equal(pp_api_write_text(&out, "a\"\\\n\x01\xc3\xa9\xff\xe2\x82", NULL), 0);
    assert_string_equal(out.data, "\"a\\\"\\\\\\u000a\\u0001\xc3\xa9\\ufffd\\ufffd\\ufffd\"");
    PP_CLEANUP_JSON json_t *read = json_loads(out.data, JSON_DECODE_ANY, NULL);
    assert_non_null(read);
    pp_buf_done(&out);
}

static void problems(void **state)
{
    pp_api_problem p;
    pp_buf out;
    (void)state;
    pp_buf_init(&out, 1000);
    (void)pp_api_problem_set(&p, PP_API_INVALID, "limit", "is \"%s\"", "no");
    assert_int_equal(pp_api_problem_write(&p, &out, NULL), 0);
    assert_string_equal(out.data,
                        "{\"type\":\"urn:precisionprobe:problem:invalid\",\"title\":\"The request "
                        "is not valid\",\"status\":400,\"detail\":\"is \\\"no\\\"\",\"field\":"
                        "\"limit\"}\n");
    pp_buf_done(&out);
}

/* ---- entity tags ---- */

static void entity_tags(void **state)
{
    char tag[PP_API_MAX_ETAG], header[200];
    pp_strings known = {0};
    bool any = true;
    (void)state;
    pp_strings query = {0};
    const uint64_t of = pp_api_etag_of("/a", &query);
    assert_int_equal(pp_strings_add(&query, "limit=1", NULL), 0);
    assert_true(of != pp_api_etag_of("/a", &query) && of != pp_api_etag_of("/b", &known));
    pp_strings_free(&query);
    pp_api_etag("abc123", of, tag);
    (void)snprintf(header, sizeof header, "\"other\", W/%s , \"", tag);
    assert_int_equal(pp_api_etags_read(header, of, &known, &any, NULL), 0);
    assert_int_equal(known.count, 1);
    assert_string_equal(known.items[0], "abc123");
    assert_false(any);
    pp_strings_free(&known);
    assert_int_equal(pp_api_etags_read(header, of + 1, &known, &any, NULL), 0);
    assert_int_equal(known.count, 0);
    assert_int_equal(pp_api_etags_read(" *", of, &known, &any, NULL), 0);
    assert_true(any);
    assert_int_equal(pp_api_etags_read("\"1-a'b\", \"1-\", \"1", of, &known, &any, NULL), 0);
    assert_int_equal(known.count, 0);
}

/* ---- pages ---- */

enum { ROW_CELLS = 12, NESTED_CELLS = 9 /* where those begin */ };

/** A layer and its first metric; metric NULL: it has none; layer NULL: there is none. */
static void make_row(pp_cell *cells, const char *layer, const char *metric, double mean)
{
    const pp_cell_type key = layer ? PP_CELL_TEXT : PP_CELL_NULL;
    const pp_cell made[ROW_CELLS] = {
        {PP_CELL_VERSION, "version", PP_CELL_TEXT, .text = "v1"},
        {PP_CELL_HEAD, "session", PP_CELL_TEXT, .text = "s"},
        {PP_CELL_KEY, "uid", PP_CELL_TEXT, .text = "u"},
        {PP_CELL_KEY, "pod", key, .text = "p"},
        {PP_CELL_KEY, "gpu", key, .text = ""},
        {PP_CELL_KEY, "kind", key, .text = "layer"},
        {PP_CELL_KEY, "layer", key, .text = layer},
        {PP_CELL_KEY, "phase", key, .text = ""},
        {PP_CELL_ROW, "layer", key, .text = layer},
        {PP_CELL_NESTED, "metric", metric ? PP_CELL_TEXT : PP_CELL_NULL, .text = metric},
        {PP_CELL_NESTED, "mean", PP_CELL_FLOAT, .real = mean},
        {PP_CELL_NESTED, "final", PP_CELL_BOOL, .number = 1},
    };
    memcpy(cells, made, sizeof made);
}

static void add(pp_api_page *page, const char *layer, const char *metric, double mean)
{
    pp_cell cells[ROW_CELLS];
    make_row(cells, layer, metric, mean);
    assert_int_equal(pp_api_page_row(page, cells, ROW_CELLS, NULL), 0);
}

/** A further metric of the layer before. */
static void add_metric(pp_api_page *page, const char *metric, double mean)
{
    pp_cell cells[ROW_CELLS];
    make_row(cells, "", metric, mean);
    assert_int_equal(pp_api_page_row(page, cells + NESTED_CELLS, ROW_CELLS - NESTED_CELLS, NULL),
                     0);
}

static void a_page_of_layers(void **state)
{
    pp_api_page page;
    (void)state;
    pp_api_page_init(&page, PP_API_LAYERS, 2);
    for (int again = 0; again < 2; again++) {
        pp_api_page_reset(&page);
        add(&page, "a", "gpu_util", (double)NAN);
        add_metric(&page, "sm_active", 0.5);
        add(&page, "b", NULL, 0);
        add(&page, "c", "gpu_util", 0.5);
        add_metric(&page, "sm_active", 0.5); /* of what has no more room */
        assert_int_equal(pp_api_page_end(&page, NULL), 0);
    }
    assert_string_equal(page.version, "v1");
    const char *rest = strstr(page.body.data, ",\"continue\":\"");
    assert_non_null(rest);
    static const char wanted[] =
        "{\"session\":\"s\",\"items\":[\n{\"layer\":\"a\",\"metrics\":{\"gpu_util\":{\"mean\":null,"
        "\"final\":true},\"sm_active\":{\"mean\":0.5,\"final\":true}}},\n{\"layer\":\"b\","
        "\"metrics\":{}}\n]";
    assert_memory_equal(page.body.data, wanted, sizeof wanted - 1);
    PP_CLEANUP_JSON json_t *read = json_loads(page.body.data, JSON_REJECT_DUPLICATES, NULL);
    pp_api_cursor c;
    assert_int_equal(pp_api_cursor_read(PP_API_LAYERS,
                                        json_string_value(json_object_get(read, "continue")), &c,
                                        NULL),
                     0);
    assert_string_equal(c.keys[4].text, "b");
    pp_api_page_done(&page);
}

static void a_page_of_nothing(void **state)
{
    pp_api_page page;
    (void)state;
    pp_api_page_init(&page, PP_API_LAYERS, 2);
    add(&page, NULL, NULL, 0);
    assert_int_equal(pp_api_page_end(&page, NULL), 0);
    assert_string_equal(page.body.data, "{\"session\":\"s\",\"items\":[]}\n");
    pp_api_page_done(&page);
    pp_api_page_init(&page, PP_API_SESSIONS, 2);
    assert_int_equal(pp_api_page_end(&page, NULL), 0);
    assert_string_equal(page.body.data, "{\"items\":[]}\n");
    pp_api_page_done(&page);
}

/* It ends behind the row with which it is full, and the next one begins there. */
static void a_page_that_is_full(void **state)
{
    static char name[1 << 20];
    pp_api_page page;
    (void)state;
    memset(name, 'x', sizeof name - 1);
    pp_api_page_init(&page, PP_API_LAYERS, 1000);
    for (int i = 0; i < 8; i++) {
        char layer[8];
        (void)snprintf(layer, sizeof layer, "l%d", i);
        add(&page, layer, name, 1);
    }
    assert_int_equal(pp_api_page_end(&page, NULL), 0);
    assert_int_equal(page.rows, 4);
    assert_true(page.body.len < PP_API_MAX_BODY);
    assert_true(page.more);
    pp_api_page_done(&page);
}

/* Rows of 3 MB and more with few other bytes, as steps of many intervals are: where a second one
 * does not fit, the next page begins with it, and one that fits on no page has the parts that do.
 */
static void rows_that_do_not_fit(void **state)
{
    static char name[1 << 20];
    pp_api_page page;
    pp_api_cursor c;
    (void)state;
    memset(name, 'x', sizeof name - 1);
    for (int parts = 3; parts <= 9; parts++) {
        pp_api_page_init(&page, PP_API_LAYERS, 1000);
        for (int row = 0; row < 3; row++) {
            add(&page, row == 0 ? "a" : row == 1 ? "b" : "c", name, 1);
            for (int i = 1; i < parts; i++)
                add_metric(&page, name, i);
        }
        assert_int_equal(pp_api_page_end(&page, NULL), 0);
        assert_true(page.body.len <= PP_API_MAX_BODY);
        PP_CLEANUP_JSON json_t *read = json_loads(page.body.data, 0, NULL);
        const json_t *items = json_object_get(read, "items");
        assert_int_equal(json_array_size(items), 1);
        size_t told = 0;
        for (const char *at = page.body.data; (at = strstr(at, "\"mean\"")); at++)
            told++;
        assert_int_equal(told, parts < 5 ? parts : 5);
        assert_int_equal(pp_api_cursor_read(PP_API_LAYERS,
                                            json_string_value(json_object_get(read, "continue")),
                                            &c, NULL),
                         0);
        assert_string_equal(c.keys[4].text, "a");
        pp_api_page_done(&page);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths_are_read),
        cmocka_unit_test(paths_that_are_none),
        cmocka_unit_test(queries),
        cmocka_unit_test(cursors),
        cmocka_unit_test(cursors_that_were_changed),
        cmocka_unit_test(a_cursor_of_another_session),
        cmocka_unit_test(numbers),
        cmocka_unit_test(texts),
        cmocka_unit_test(problems),
        cmocka_unit_test(entity_tags),
        cmocka_unit_test(a_page_of_layers),
        cmocka_unit_test(a_page_of_nothing),
        cmocka_unit_test(a_page_that_is_full),
        cmocka_unit_test(rows_that_do_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
