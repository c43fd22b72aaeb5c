/*
 * A row of a query, as it goes from the store to whoever writes it down: cells with names. Where a
 * cell belongs is its section; a row's sections come in this order.
 */
#ifndef PP_COMMON_CELL_H
#define PP_COMMON_CELL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum pp_cell_type {
    PP_CELL_NULL,  /**< not known */
    PP_CELL_BOOL,  /**< number: 0 or 1 */
    PP_CELL_INT,   /**< number */
    PP_CELL_FLOAT, /**< real */
    PP_CELL_TEXT,  /**< text */
    PP_CELL_JSON,  /**< text: a JSON value */
    PP_CELL_TIME,  /**< number: ns since 1970 */
} pp_cell_type;

typedef enum pp_cell_section {
    PP_CELL_VERSION, /**< of all that is read, one text */
    PP_CELL_KEY,     /**< where the row stands among the others: integers and texts */
    PP_CELL_HEAD,    /**< the same in all rows */
    PP_CELL_ROW,
    PP_CELL_NESTED, /**< of a part of the row; without other cells: of a further one */
} pp_cell_section;

/** Everything is borrowed. */
typedef struct pp_cell {
    pp_cell_section section;
    const char *name;
    pp_cell_type type;
    int64_t number;
    double real;
    const char *text; /**< NUL-terminated */
} pp_cell;

#endif
