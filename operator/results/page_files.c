#include "operator/results/page_files.h"

#include "page/assets.h"

#include <string.h>

static const char folder[] = "/page/";

bool pp_page_file(const char *path, pp_http_file *ret)
{
    if (strcmp(path, "/") == 0 || strcmp(path, "/page") == 0) {
        *ret = (pp_http_file){
            .type = "text/plain; charset=utf-8", .headers = PP_PAGE_HEADERS, .location = "page/"};
        return true;
    }
    if (strncmp(path, folder, sizeof folder - 1) != 0)
        return false;
    const pp_page_asset *asset = pp_page_find(path + sizeof folder - 1);
    if (!asset)
        return false;
    *ret = (pp_http_file){.type = asset->type,
                          .etag = asset->etag,
                          .headers = PP_PAGE_HEADERS,
                          .data = asset->data,
                          .len = asset->len};
    return true;
}
