#include "common/text.h"

#include <string.h>

static bool turns_writing(const unsigned char *t)
{
    if (t[0] == 0xd8)
        return t[1] == 0x9c;
    if (t[0] != 0xe2 || (t[1] != 0x80 && t[1] != 0x81))
        return false;
    return t[1] == 0x81 ? t[2] >= 0xa6 && t[2] <= 0xa9
                        : t[2] == 0x8e || t[2] == 0x8f || (t[2] >= 0xa8 && t[2] <= 0xae);
}

bool pp_text_is_control(const char *text)
{
    const unsigned char *t = (const unsigned char *)text;
    return t[0] < ' ' || t[0] == 0x7f || (t[0] == 0xc2 && t[1] >= 0x80 && t[1] < 0xa0) ||
           turns_writing(t);
}

static bool goes_on(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

/* Bytes of a character that begins so. */
static size_t length_of(char first)
{
    const unsigned char c = (unsigned char)first;
    return c < 0xc0 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
}

void pp_text_tame(char *text)
{
    char *to = text;
    for (const char *at = text; *at;) {
        size_t n = 1;
        while (n < length_of(*at) && goes_on(at[n]))
            n++;
        const bool whole = n == length_of(*at);
        const bool control = pp_text_is_control(at);
        if (control)
            *to++ = '?';
        else if (whole) {
            memmove(to, at, n);
            to += n;
        }
        at += n;
    }
    *to = '\0';
}

const char *pp_text_file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}
