# Flags and small functions shared by the folders' CMakeLists.txt.

add_library(pp_flags INTERFACE)
target_compile_features(pp_flags INTERFACE c_std_17)
target_compile_definitions(pp_flags INTERFACE _GNU_SOURCE)
# uthash's default function falls through switch labels, which clang's warning refuses.
target_compile_definitions(pp_flags INTERFACE HASH_FUNCTION=HASH_OAT)
target_compile_options(
  pp_flags
  INTERFACE -Wall
            -Wextra
            -Wpedantic
            -Wshadow
            -Wstrict-prototypes
            -Wmissing-prototypes
            -Wold-style-definition
            -Wpointer-arith
            -Wcast-qual
            -Wwrite-strings
            -Wformat=2
            -Wundef
            -Wvla
            -Wdouble-promotion
            -Wimplicit-fallthrough
            -Wno-gnu-statement-expression
            -Werror
            -fvisibility=hidden
            -fno-common
            # On aarch64 gcc would fuse a * b + c, which rounds once: the same data gives the same estimates everywhere.
            -ffp-contract=off)
# Statement expressions (PP_TAKE) are a GNU extension that gcc and clang both have.
target_compile_options(pp_flags INTERFACE $<$<C_COMPILER_ID:GNU>:-Wlogical-op
                                          -Wduplicated-cond -Wno-pedantic
                                          # Texts for people are cut at their limit on purpose.
                                          -Wno-format-truncation>)
target_include_directories(pp_flags INTERFACE ${PROJECT_SOURCE_DIR})

option(PP_HARDEN "Stack protector, fortify, full RELRO" OFF)
if(PP_HARDEN)
  target_compile_options(pp_flags INTERFACE -fstack-protector-strong -D_FORTIFY_SOURCE=2)
  target_link_options(pp_flags INTERFACE -Wl,-z,relro,-z,now)
endif()

set(PP_SANITIZE
    ""
    CACHE STRING "Sanitizers for everything but the hook, e.g. address,undefined")
if(PP_SANITIZE)
  # -O1: what is checked at each access takes half the time, and stacks are still those of the source.
  target_compile_options(pp_flags INTERFACE -O1 -fsanitize=${PP_SANITIZE} -fno-omit-frame-pointer -fno-optimize-sibling-calls
                                            -fno-sanitize-recover=all)
  target_link_options(pp_flags INTERFACE -fsanitize=${PP_SANITIZE})
endif()

# pp_library(NAME SOURCES... [LIBS libs...]): a static library of one folder, and of those below that make none.
function(pp_library name)
  cmake_parse_arguments(A "" "" "LIBS" ${ARGN})
  add_library(${name} STATIC ${A_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PUBLIC pp_flags ${A_LIBS})
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
endfunction()

# pp_arithmetic(SOURCES...): arithmetic over hundreds of windows by dozens of columns, optimised in debug builds too, or its
# tests take minutes. It has no threads and shares nothing, and takes a hundred times as long where each access is noted.
function(pp_arithmetic)
  set(options -O3)
  if(PP_SANITIZE MATCHES thread)
    list(APPEND options -fno-sanitize=thread)
  endif()
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS "${options}")
endfunction()

# pp_test(NAME SOURCES... [LIBS libs...] [LABELS labels...] [ENV VAR=VALUE...] [THREADS]): one cmocka program. A label says
# what it needs; without one it is "quick" and needs nothing. "statistics": many simulated runs, or others that
# compute for long; the suite has them in an optimised build alone. THREADS: it, or what it tests, starts threads, libraries' among
# them (a preloaded pthread_create tells). Such are labelled "threads"; ThreadSanitizer sees nothing in any other.
function(pp_test name)
  cmake_parse_arguments(A "THREADS" "" "LIBS;LABELS;ENV" ${ARGN})
  if(NOT A_LABELS)
    set(A_LABELS quick)
  endif()
  add_executable(${name} ${A_UNPARSED_ARGUMENTS})
  if(A_THREADS)
    list(APPEND A_LABELS threads)
  elseif(PP_SANITIZE MATCHES thread)
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL TRUE)
  endif()
  target_link_libraries(${name} PRIVATE pp_flags ${A_LIBS} PkgConfig::CMOCKA)
  target_compile_definitions(${name} PRIVATE PP_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(
    ${name}
    PROPERTIES TIMEOUT
               1200
               LABELS
               "${A_LABELS}"
               ENVIRONMENT
               "${A_ENV};ASAN_OPTIONS=detect_leaks=1;UBSAN_OPTIONS=print_stacktrace=1;TSAN_OPTIONS=halt_on_error=1")
endfunction()
