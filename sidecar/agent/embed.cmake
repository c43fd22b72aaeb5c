# cmake -DFILE=events.yaml -DOUT=openapi.c -P embed.cmake
file(READ ${FILE} hex HEX)
string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
file(WRITE ${OUT} "/* Made from docs/openapi/events.yaml by embed.cmake. */
#include \"sidecar/agent/openapi.h\"

const char pp_openapi[] = {${bytes}0x00};
")
