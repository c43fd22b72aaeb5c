/*
 * The page (docs/page.md) on the operator's ports: at /page/, whose files name each other and the
 * API by relative paths, so that it works behind any proxy's prefix.
 */
#ifndef PP_OPERATOR_RESULTS_PAGE_FILES_H
#define PP_OPERATOR_RESULTS_PAGE_FILES_H

#include "operator/http_server/server.h"

/** The file of a request's path; false: there is none. / and /page lead to /page/. */
bool pp_page_file(const char *path, pp_http_file *ret);

#endif
