#include "cli/terminal/screen.h"

#include "cli/terminal/names.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define ENTER "\033[?1049h\033[?25l"
#define LEAVE "\033[?25h\033[?1049l"
#define HOME "\033[H"
#define CLEAR_LINE "\033[K"
#define CLEAR_BELOW "\033[J"

struct pp_screen {
    bool terminal, keys; /* standard output, and standard input, are one */
    struct termios before;
    sigset_t mask; /* as it was */
};

static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH};
enum { SIGNALS = sizeof signals / sizeof *signals };

/* The signal that came last; they are let in while we wait, and only then. */
static volatile sig_atomic_t came;

static void on_signal(int number)
{
    came = number;
}

static void enter(const pp_screen *s)
{
    if (s->keys) {
        struct termios raw = s->before;
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
    }
    if (s->terminal)
        (void)fputs(ENTER, stdout);
    (void)fflush(stdout);
}

static void leave(const pp_screen *s)
{
    if (s->terminal)
        (void)fputs(LEAVE, stdout);
    (void)fflush(stdout);
    if (s->keys)
        (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &s->before);
}

static void set_handlers(void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler};
    (void)sigemptyset(&action.sa_mask);
    for (int i = 0; i < SIGNALS; i++)
        (void)sigaction(signals[i], &action, NULL);
}

int pp_screen_open(pp_screen **ret, pp_error *err)
{
    pp_screen *s = calloc(1, sizeof *s);
    sigset_t held;
    if (!s)
        return pp_error_nomem(err);
    s->terminal = isatty(STDOUT_FILENO);
    s->keys = s->terminal && isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &s->before) == 0;
    (void)sigemptyset(&held);
    for (int i = 0; i < SIGNALS; i++)
        (void)sigaddset(&held, signals[i]);
    (void)sigprocmask(SIG_BLOCK, &held, &s->mask);
    came = 0;
    set_handlers(on_signal);
    enter(s);
    *ret = s;
    return 0;
}

void pp_screen_close(pp_screen *s)
{
    if (!s)
        return;
    leave(s);
    set_handlers(SIG_DFL);
    (void)sigprocmask(SIG_SETMASK, &s->mask, NULL);
    free(s);
}

pp_screen_size pp_screen_size_of(const pp_screen *s)
{
    struct winsize size = {0};
    if (!s->terminal || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0)
        return (pp_screen_size){0};
    return (pp_screen_size){size.ws_col, size.ws_row};
}

/* One line, cut where the terminal ends: a longer one would push the others down. */
static void show_line(const char *line, size_t length, int columns)
{
    char *copy = strndup(line, length);
    if (!copy)
        return;
    const int places = pp_name_places(copy);
    const pp_name_cut cut = {.places = places < columns ? places : columns, .head = columns - 1};
    pp_name_print(stdout, copy, &cut);
    (void)fputs(CLEAR_LINE, stdout);
    free(copy);
}

void pp_screen_show(pp_screen *s, const char *text)
{
    const pp_screen_size size = pp_screen_size_of(s);
    if (!s->terminal) {
        pp_lines_print(stdout, text);
        (void)fflush(stdout);
        return;
    }
    (void)fputs(HOME, stdout);
    for (int row = 0; row < size.rows && *text; row++) {
        const size_t length = strcspn(text, "\n");
        if (row > 0)
            (void)fputs("\r\n", stdout);
        show_line(text, length, size.columns);
        text += length + (text[length] == '\n');
    }
    (void)fputs(CLEAR_BELOW, stdout);
    (void)fflush(stdout);
}

/* As the shell expects of a program that is stopped; it is drawn anew when it goes on. */
static void stop(const pp_screen *s)
{
    sigset_t stops;
    struct sigaction action = {.sa_handler = SIG_DFL}, ours;
    leave(s);
    (void)sigemptyset(&stops);
    (void)sigaddset(&stops, SIGTSTP);
    (void)sigaction(SIGTSTP, &action, &ours);
    (void)raise(SIGTSTP);
    (void)sigprocmask(SIG_UNBLOCK, &stops, NULL); /* here it stops */
    (void)sigprocmask(SIG_BLOCK, &stops, NULL);
    (void)sigaction(SIGTSTP, &ours, NULL);
    enter(s);
}

/* What a key asks for; 0: nothing. A terminal that is gone is as good as SIGHUP, which would come
 * only once there is nothing to read. */
static int take_key(void)
{
    char key;
    const ssize_t n = read(STDIN_FILENO, &key, 1);
    if (n == 1)
        return key == 'q' || key == 'Q' ? PP_SCREEN_QUIT : 0;
    return n < 0 && errno == EINTR ? 0 : SIGHUP;
}

int pp_screen_wait(pp_screen *s, double seconds)
{
    struct timespec until, now;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    double left = seconds;
    while (left > 0) {
        struct pollfd key = {s->keys ? STDIN_FILENO : -1, POLLIN, 0};
        const struct timespec wait = {(time_t)left, (long)((left - (double)(time_t)left) * 1e9)};
        came = 0;
        const int rc = ppoll(&key, 1, &wait, &s->mask);
        if (rc < 0 && errno != EINTR)
            return SIGHUP; /* nothing would be waited for */
        const int asked = rc > 0 ? take_key() : 0;
        if (asked)
            return asked;
        if (came == SIGTSTP)
            stop(s);
        if (came == SIGTSTP || came == SIGWINCH || came == SIGCONT)
            return 0;
        if (came)
            return came;
        (void)clock_gettime(CLOCK_MONOTONIC, &now);
        left = seconds - (double)(now.tv_sec - until.tv_sec) -
               (double)(now.tv_nsec - until.tv_nsec) / 1e9;
    }
    return 0;
}
