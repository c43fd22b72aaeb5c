#include "cli/terminal/progress.h"

#include "cli/terminal/names.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { TEXT_MAX = 512, COLUMNS = 80 };

static bool shown;

/* A line that wraps could not be taken away. */
static int columns(void)
{
    struct winsize size = {0};
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : COLUMNS;
}

void pp_progress_show(const char *format, ...)
{
    char text[TEXT_MAX];
    va_list arguments;
    if (!isatty(STDERR_FILENO))
        return;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    const int places = pp_name_places(text), most = columns() - 1;
    const pp_name_cut cut = {.places = places < most ? places : most, .head = most / 2};
    (void)fputs("\r\033[K", stderr);
    pp_name_print(stderr, text, &cut);
    (void)fflush(stderr);
    shown = true;
}

void pp_progress_clear(void)
{
    if (shown)
        (void)fputs("\r\033[K", stderr);
    (void)fflush(stderr);
    shown = false;
}
