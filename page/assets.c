#include "page/assets.h"

#include <string.h>

const pp_page_asset *pp_page_find(const char *name)
{
    size_t n = 0;
    const pp_page_asset *assets = pp_page_assets(&n);
    const char *wanted = *name ? name : "index.html";
    for (size_t i = 0; i < n; i++) {
        if (strcmp(assets[i].name, wanted) == 0)
            return &assets[i];
    }
    return NULL;
}
