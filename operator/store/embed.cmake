# cmake -DFILES=a.sql;b.sql -DOUT=migrations.c -P embed.cmake
set(arrays "")
set(table "")
set(count 0)
foreach(file IN LISTS FILES)
  get_filename_component(name ${file} NAME_WE)
  math(EXPR count "${count} + 1")
  string(REGEX MATCH "^[0-9]+" version ${name})
  string(REGEX REPLACE "^0+" "" version "${version}")
  if(NOT version EQUAL count)
    message(FATAL_ERROR "migration ${name} should have version ${count}")
  endif()
  file(READ ${file} hex HEX)
  file(SHA256 ${file} checksum)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
  string(REGEX REPLACE "(................................................................................)"
                       "\\1\n    " bytes "${bytes}")
  string(APPEND arrays "static const char sql_${count}[] = {\n    ${bytes}0x00};\n")
  string(APPEND table "    {${count}, \"${name}\", \"${checksum}\", sql_${count}},\n")
endforeach()
file(WRITE ${OUT} "/* Made from migrations/ by embed.cmake. */
#include \"operator/store/migrate.h\"

${arrays}
const pp_migration pp_migrations[] = {
${table}};
const size_t pp_migrations_count = sizeof(pp_migrations) / sizeof(pp_migrations[0]);
")
