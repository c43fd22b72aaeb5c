#include "operator/api/page.h"

#include "operator/api/value.h"

#include <string.h>

/** What a row's parts are gathered in. */
static const struct {
    const char *name;
    bool map; /* by the first cell of each */
} nests[PP_API_KINDS] = {
    [PP_API_LAYERS] = {"metrics", true},
    [PP_API_TIMELINE] = {"intervals", false},
};

void pp_api_page_init(pp_api_page *page, pp_api_kind kind, int64_t limit)
{
    *page = (pp_api_page){.kind = kind, .limit = limit};
    pp_buf_init(&page->body, PP_API_MAX_BODY);
    pp_buf_init(&page->next, PP_API_MAX_CURSOR);
    pp_buf_init(&page->before, PP_API_MAX_CURSOR);
}

void pp_api_page_done(pp_api_page *page)
{
    pp_buf_done(&page->body);
    pp_buf_done(&page->next);
    pp_buf_done(&page->before);
}

void pp_api_page_reset(pp_api_page *page)
{
    const pp_api_kind kind = page->kind;
    const int64_t limit = page->limit;
    pp_api_page_done(page);
    pp_api_page_init(page, kind, limit);
}

static int put(pp_buf *out, const char *text, pp_error *err)
{
    return pp_buf_append(out, text, strlen(text), err);
}

/* `"name":`, after a comma but for the first. At once and without printf: there are hundreds of
 * thousands to a page. */
static int write_name(pp_buf *out, const char *name, bool first, pp_error *err)
{
    const size_t n = strlen(name);
    if (pp_buf_reserve(out, n + 4, err) < 0)
        return -1;
    char *to = out->data + out->len;
    if (!first)
        *to++ = ',';
    *to++ = '"';
    to = mempcpy(to, name, n);
    to = mempcpy(to, "\":", 3); /* with the NUL */
    out->len = (size_t)(to - 1 - out->data);
    return 0;
}

/* `"name":value` of each cell of a section, with commas between. */
static int write_section(pp_buf *out, const pp_cell *cells, size_t n, pp_cell_section section,
                         pp_error *err)
{
    bool first = true;
    for (size_t i = 0; i < n; i++) {
        if (cells[i].section != section)
            continue;
        if (write_name(out, cells[i].name, first, err) < 0 ||
            pp_api_write_cell(out, &cells[i], err) < 0)
            return -1;
        first = false;
    }
    return 0;
}

static bool has_section(const pp_cell *cells, size_t n, pp_cell_section section)
{
    for (size_t i = 0; i < n; i++) {
        if (cells[i].section == section)
            return true;
    }
    return false;
}

/* ---- keys ---- */

/* Whether the row has a key, whole: else there is none. */
static bool has_key(const pp_cell *cells, size_t n)
{
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        if (cells[i].section == PP_CELL_KEY && cells[i].type == PP_CELL_NULL)
            return false;
        any |= cells[i].section == PP_CELL_KEY;
    }
    return any;
}

static void swap_cursors(pp_api_page *page)
{
    const pp_buf next = page->next;
    page->next = page->before;
    page->before = next;
}

/* Of the row that begins; that of the row before is kept. */
static int write_cursor(pp_api_page *page, const pp_cell *cells, size_t n, pp_error *err)
{
    pp_api_key keys[PP_API_MAX_KEYS];
    size_t k = 0;
    for (size_t i = 0; i < n && k < PP_API_MAX_KEYS; i++) {
        if (cells[i].section == PP_CELL_KEY)
            keys[k++] = (pp_api_key){.is_text = cells[i].type == PP_CELL_TEXT,
                                     .number = cells[i].number,
                                     .text = cells[i].text};
    }
    swap_cursors(page);
    pp_buf_reset(&page->next);
    return pp_api_cursor_write(page->kind, keys, k, &page->next, err);
}

/* ---- rows ---- */

static int begin_document(pp_api_page *page, const pp_cell *cells, size_t n, pp_error *err)
{
    if (page->begun)
        return 0;
    page->begun = true;
    for (size_t i = 0; i < n; i++) {
        if (cells[i].section == PP_CELL_VERSION && cells[i].type == PP_CELL_TEXT)
            pp_copy_cut(page->version, sizeof page->version, cells[i].text);
    }
    if (put(&page->body, "{", err) < 0 ||
        write_section(&page->body, cells, n, PP_CELL_HEAD, err) < 0)
        return -1;
    if (!*pp_api_keys_of(page->kind))
        return 0;
    return pp_buf_printf(&page->body, err, "%s\"items\":[",
                         has_section(cells, n, PP_CELL_HEAD) ? "," : "");
}

static int end_row(pp_api_page *page, pp_error *err)
{
    if (page->rows == 0)
        return 0;
    if (!nests[page->kind].name)
        return put(&page->body, "}", err);
    return put(&page->body, nests[page->kind].map ? "}}" : "]}", err);
}

static int begin_row(pp_api_page *page, const pp_cell *cells, size_t n, pp_error *err)
{
    page->behind = page->body.len;
    if (end_row(page, err) < 0 || put(&page->body, page->rows ? ",\n{" : "\n{", err) < 0 ||
        write_section(&page->body, cells, n, PP_CELL_ROW, err) < 0)
        return -1;
    page->rows++;
    page->nested = false;
    if (nests[page->kind].name &&
        (write_name(&page->body, nests[page->kind].name, false, err) < 0 ||
         put(&page->body, nests[page->kind].map ? "{" : "[", err) < 0))
        return -1;
    return write_cursor(page, cells, n, err);
}

/* Takes back what was written from there on. */
static void cut_body(pp_api_page *page, size_t at)
{
    page->body.len = at;
    page->body.data[at] = '\0';
}

/* A part from `at` on is one too many. */
static void leave_out(pp_api_page *page, size_t at, bool nested)
{
    if (page->rows == 1) {
        cut_body(page, at);
        page->nested = nested;
        return;
    }
    cut_body(page, page->behind);
    swap_cursors(page);
    page->rows--;
    page->more = true;
}

/* A part of the row: there is none where its first cell is not known. */
static int write_part(pp_api_page *page, const pp_cell *cells, size_t n, pp_error *err)
{
    while (n > 0 && cells->section != PP_CELL_NESTED) {
        cells++;
        n--;
    }
    if (n == 0 || cells->type == PP_CELL_NULL)
        return 0;
    if (page->nested && put(&page->body, ",", err) < 0)
        return -1;
    page->nested = true;
    if (nests[page->kind].map) {
        if (pp_api_write_text(&page->body, cells->text, err) < 0 || put(&page->body, ":", err) < 0)
            return -1;
        cells++;
        n--;
    }
    if (put(&page->body, "{", err) < 0 ||
        write_section(&page->body, cells, n, PP_CELL_NESTED, err) < 0)
        return -1;
    return put(&page->body, "}", err);
}

static int add_part(pp_api_page *page, const pp_cell *cells, size_t n, pp_error *err)
{
    const size_t at = page->body.len;
    const bool nested = page->nested;
    pp_error own;
    own.code = PP_OK;
    const int rc = write_part(page, cells, n, &own);
    if (rc < 0 && own.code != PP_ERR_TOO_LARGE) {
        if (err)
            *err = own;
        return -1;
    }
    if (rc < 0 || page->body.len > PP_API_MAX_BODY - PP_API_END_BODY)
        leave_out(page, at, nested);
    return 0;
}

/* Whether it goes on with the row before. */
static bool is_part(const pp_cell *cells, size_t n)
{
    return n > 0 && cells->section == PP_CELL_NESTED;
}

int pp_api_page_row(pp_api_page *page, const pp_cell *cells, size_t n, pp_error *err)
{
    if (begin_document(page, cells, n, err) < 0)
        return -1;
    if (page->more)
        return 0;
    if (!is_part(cells, n)) {
        if (!has_key(cells, n))
            return 0;
        page->more = page->rows >= page->limit || page->body.len >= PP_API_FULL_BODY;
        if (page->more)
            return 0;
        if (begin_row(page, cells, n, err) < 0)
            return -1;
    }
    return nests[page->kind].name ? add_part(page, cells, n, err) : 0;
}

int pp_api_page_end(pp_api_page *page, pp_error *err)
{
    if (begin_document(page, NULL, 0, err) < 0)
        return -1;
    if (!*pp_api_keys_of(page->kind))
        return put(&page->body, "}\n", err);
    if (end_row(page, err) < 0 || put(&page->body, page->rows ? "\n]" : "]", err) < 0)
        return -1;
    if (page->more && pp_buf_printf(&page->body, err, ",\"continue\":\"%s\"", page->next.data) < 0)
        return -1;
    return put(&page->body, "}\n", err);
}
