# Toolchain file: compiles for aarch64 on another machine, with Debian's cross compiler and the root file system of arm64
# packages that PP_AARCH64_ROOT names (e2e/aarch64/root makes it and prints its path).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)

set(PP_AARCH64_ROOT
    ""
    CACHE PATH "Root file system of Debian's arm64 packages")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES PP_AARCH64_ROOT)
set(CMAKE_SYSROOT ${PP_AARCH64_ROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${PP_AARCH64_ROOT})
set(ENV{PKG_CONFIG_LIBDIR} ${PP_AARCH64_ROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${PP_AARCH64_ROOT}/usr/share/pkgconfig)
file(GLOB PP_AARCH64_PYTHON ${PP_AARCH64_ROOT}/usr/include/python3.*)
set(PP_HOOK_PYTHON_INCLUDE
    ${PP_AARCH64_PYTHON}
    CACHE PATH "Folder of Python.h")
