#include "cli/formats/csv.h"

#include "common/number.h"

#include <string.h>

static void put(FILE *to, const char *before, const char *text)
{
    (void)fprintf(to, "\"%s", before);
    for (const char *c = text; *c; c++) {
        if (*c == '"')
            (void)fputc('"', to);
        (void)fputc(*c, to);
    }
    (void)fputc('"', to);
}

void pp_csv_text(FILE *to, const char *text)
{
    if (text)
        put(to, "", text);
}

void pp_csv_plain_text(FILE *to, const char *text)
{
    if (text)
        put(to, *text && strchr("=+-@\t\r\n'", *text) ? "'" : "", text);
}

void pp_csv_number(FILE *to, double number)
{
    char text[PP_NUMBER_TEXT];
    (void)fputs(pp_number_text(number, text), to);
}

void pp_csv_value(FILE *to, const json_t *value)
{
    if (json_is_string(value))
        pp_csv_plain_text(to, json_string_value(value));
    else if (json_is_integer(value))
        (void)fprintf(to, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        pp_csv_number(to, json_real_value(value));
}
