/*
 * The page's files as they are served, built into the program (page/README.md). Whoever serves them
 * sends PP_PAGE_HEADERS with each: with it a browser runs no script and loads nothing that is not
 * one of these files, whatever names a training gave to its layers.
 */
#ifndef PP_PAGE_ASSETS_H
#define PP_PAGE_ASSETS_H

#include <stddef.h>

/** Whole lines of a head. The page is the same for everybody: a browser keeps it and asks by its
 * tag whether it still is so. */
#define PP_PAGE_HEADERS                                                                            \
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; "           \
    "connect-src 'self'; img-src 'self' data:; base-uri 'none'; frame-ancestors 'none'; "          \
    "form-action 'none'\r\n"                                                                       \
    "X-Content-Type-Options: nosniff\r\n"                                                          \
    "Referrer-Policy: no-referrer\r\n"                                                             \
    "Cross-Origin-Opener-Policy: same-origin\r\n"                                                  \
    "Cross-Origin-Resource-Policy: same-origin\r\n"                                                \
    "Cache-Control: no-cache\r\n"

typedef struct pp_page_asset {
    const char *name; /**< below the page's folder */
    const char *type; /**< media type */
    const char *etag; /**< with its quotes; of the bytes */
    const unsigned char *data;
    size_t len;
} pp_page_asset;

/** By its name, "" being index.html; NULL: there is none. Of the program, never freed. */
const pp_page_asset *pp_page_find(const char *name);

/** All of them. */
const pp_page_asset *pp_page_assets(size_t *ret_n);

#endif
