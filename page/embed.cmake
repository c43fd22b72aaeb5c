# cmake -DOUT=embedded.c "-DFILES=index.html;..." -P embed.cmake: files as bytes, with their media types and tags.
set(types .html=text/html .js=text/javascript .css=text/css .txt=text/plain)
set(bytes "")
set(table "")
set(number 0)
foreach(file IN LISTS FILES)
  get_filename_component(name ${file} NAME)
  get_filename_component(extension ${file} LAST_EXT)
  set(type "")
  foreach(pair IN LISTS types)
    if(pair MATCHES "^(.+)=(.+)$" AND CMAKE_MATCH_1 STREQUAL extension)
      set(type "${CMAKE_MATCH_2}; charset=utf-8")
    endif()
  endforeach()
  if(name STREQUAL LICENSE)
    set(name uPlot.LICENSE.txt)
    set(type "text/plain; charset=utf-8")
  endif()
  if(NOT type)
    message(FATAL_ERROR "${file}: what is its media type?")
  endif()
  file(READ ${file} hex HEX)
  file(SHA256 ${file} digest)
  string(SUBSTRING ${digest} 0 32 tag)
  string(REGEX REPLACE "(..)" "0x\\1," data "${hex}")
  string(APPEND bytes "static const unsigned char file_${number}[] = {${data}};\n")
  string(APPEND table "    {\"${name}\", \"${type}\", \"\\\"${tag}\\\"\", file_${number}, sizeof file_${number}},\n")
  math(EXPR number "${number} + 1")
endforeach()
file(WRITE ${OUT} "/* Made by embed.cmake. */
#include \"page/assets.h\"

${bytes}
static const pp_page_asset all[] = {
${table}};

const pp_page_asset *pp_page_assets(size_t *ret_n)
{
    *ret_n = sizeof all / sizeof *all;
    return all;
}
")
