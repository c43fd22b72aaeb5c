/* Texts that somebody else chose: names of layers, on their way to people, what a pod says of
 * itself, paths. */
#ifndef PP_COMMON_TEXT_H
#define PP_COMMON_TEXT_H

#include <stdbool.h>

/** Whether a control character begins here: of ASCII, of those from U+0080 to U+009F, which
 * terminals obey as well, or of writing's direction (U+061C, U+200E, U+200F, U+2028 to U+202E,
 * U+2066 to U+2069). */
bool pp_text_is_control(const char *text);

/** Each control character becomes a '?', in place; a character whose end was cut off goes. */
void pp_text_tame(char *text);

/** What is behind a path's last '/': the file's name; a part of `path`. */
const char *pp_text_file_name(const char *path);

#endif
