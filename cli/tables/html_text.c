#include "cli/tables/html_text.h"

#include "common/number.h"
#include "common/text.h"

static void put(FILE *to, char c)
{
    switch (c) {
    case '&':
        (void)fputs("&amp;", to);
        break;
    case '<':
        (void)fputs("&lt;", to);
        break;
    case '>':
        (void)fputs("&gt;", to);
        break;
    case '"':
        (void)fputs("&quot;", to);
        break;
    case '\'':
        (void)fputs("&#39;", to);
        break;
    default:
        (void)fputc(c, to);
    }
}

void pp_html_text(FILE *to, const char *text)
{
    bool control = false;
    for (const char *t = text; *t; t++) {
        const bool begins = ((unsigned char)*t & 0xc0) != 0x80;
        control = begins ? *t != '\n' && pp_text_is_control(t) : control;
        if (!control)
            put(to, *t);
        else if (begins)
            (void)fputc('?', to);
    }
}

void pp_html_data(FILE *to, const json_t *number)
{
    char text[PP_NUMBER_TEXT];
    if (json_is_integer(number))
        (void)fprintf(to, "<data value=\"%lld\">", (long long)json_integer_value(number));
    else
        (void)fprintf(to, "<data value=\"%s\">", pp_number_text(json_real_value(number), text));
}

void pp_html_number(FILE *to, const json_t *number, double scale, int digits)
{
    if (!json_is_number(number)) {
        (void)fputs("not known", to);
        return;
    }
    pp_html_data(to, number);
    (void)fprintf(to, "%.*f</data>", digits, json_number_value(number) * scale);
}
