/*
 * A terminal's screen that is drawn again and again, and given back as it was: by plain escape
 * codes (ECMA-48 and xterm's alternate screen). Where standard output is no terminal, what is drawn
 * is written as it is.
 */
#ifndef PP_CLI_TERMINAL_SCREEN_H
#define PP_CLI_TERMINAL_SCREEN_H

#include "common/error.h"

typedef struct pp_screen pp_screen;

/** 0: any number, since it is no terminal. */
typedef struct pp_screen_size {
    int columns, rows;
} pp_screen_size;

enum { PP_SCREEN_QUIT = -1 };

/** Takes the terminal over: its alternate screen, without cursor and echo; and the signals that end
 * a program or stop it. */
int pp_screen_open(pp_screen **ret, pp_error *err);

/** Gives it back. NULL is allowed. */
void pp_screen_close(pp_screen *screen);

pp_screen_size pp_screen_size_of(const pp_screen *screen);

/** Draws lines of text, as many as there is place for; control characters as "?". */
void pp_screen_show(pp_screen *screen, const char *text);

/**
 * Waits. Returns 0 after so many seconds or where the terminal has another size now; PP_SCREEN_QUIT
 * where somebody pressed q; the number of a signal that asks for an end.
 */
int pp_screen_wait(pp_screen *screen, double seconds);

#endif
