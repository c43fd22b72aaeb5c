/*
 * The answer to a request as JSON: rows in, a body out. The first cells that are the same in all
 * rows stand at the document's top, the rows in its list `items`; where more follow, `continue`
 * says from where. No I/O.
 */
#ifndef PP_OPERATOR_API_PAGE_H
#define PP_OPERATOR_API_PAGE_H

#include "common/buf.h"
#include "common/cell.h"
#include "operator/api/cursor.h"

#include <stdbool.h>

enum {
    PP_API_MAX_BODY = 6 << 20,  /**< bytes */
    PP_API_FULL_BODY = 4 << 20, /**< past it no row begins */
    PP_API_END_BODY = 8 << 10,  /**< of these, kept for what ends the document */
};

typedef struct pp_api_page {
    pp_api_kind kind;
    int64_t limit; /**< rows */
    int64_t rows;
    bool begun;       /**< the document's top is written */
    bool more;        /**< there is a row that this page does not hold */
    bool nested;      /**< the row has a part already */
    char version[65]; /**< of all that is read; "": there is nothing */
    pp_buf body;
    size_t behind; /**< bytes of the body behind which the row that is being written stands */
    pp_buf next;   /**< the cursor of that row ... */
    pp_buf before; /**< ... and of the one before it */
} pp_api_page;

/** `limit`: rows. */
void pp_api_page_init(pp_api_page *page, pp_api_kind kind, int64_t limit);
/** Frees what it holds; it may be initialised again. */
void pp_api_page_done(pp_api_page *page);
/** Empties it: the rows come again from the first on. */
void pp_api_page_reset(pp_api_page *page);

/**
 * Takes a row; one whose key is not known only tells the document's top. What begins with a nested
 * cell is a further part of the row before. Past the limit, or a full body, rows are left out. A
 * row whose parts do not fit is left to the next page, where it stands alone: parts that do not fit
 * there are left out.
 */
int pp_api_page_row(pp_api_page *page, const pp_cell *cells, size_t n, pp_error *err);

/** After the last row: ends the document. */
int pp_api_page_end(pp_api_page *page, pp_error *err);

#endif
