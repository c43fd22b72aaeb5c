# cmake -DFILE=api.yaml -DOUT=openapi.c -P embed.cmake
file(READ ${FILE} hex HEX)
string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
file(WRITE ${OUT} "/* Made from docs/openapi/api.yaml by embed.cmake. */
#include \"operator/api/openapi.h\"

const char pp_api_openapi[] = {${bytes}0x00};
")
