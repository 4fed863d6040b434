#include "base/base.h"

#include <stdio.h>

const char *sennit_status_name(sennit_status status)
{
    static const char *const names[] = {"ok",     "invalid",     "range",     "state",   "nomem",   "io",
                                        "format", "unsupported", "not_found", "too_big", "numeric", "internal",
                                        "busy"};
    return (size_t)status < SN_ARRAY_LEN(names) ? names[status] : "unknown";
}

const char *sennit_version(void) { return SENNIT_VERSION; }

/* Cuts a message that did not fit at a character boundary: half a UTF-8 character would break a JSON log. */
static void cut_at_character(char *message)
{
    size_t n = strlen(message);
    size_t start = n;
    while (start > 0 && ((unsigned char)message[start - 1] & 0xC0) == 0x80)
        start--;
    if (start == 0)
        return;
    unsigned char lead = (unsigned char)message[start - 1];
    size_t need = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
    if (n - (start - 1) < need)
        message[start - 1] = '\0';
}

sennit_status sn_fail(struct sennit_error *err, sennit_status status, const char *fmt, ...)
{
    if (err) {
        char text[sizeof err->message]; /* the arguments may point into err itself */
        va_list ap;
        va_start(ap, fmt);
        int n = vsnprintf(text, sizeof text, fmt, ap);
        va_end(ap);
        if (n >= (int)sizeof text)
            cut_at_character(text);
        err->code = status;
        memcpy(err->message, text, sizeof text);
    }
    return status;
}

void sn_error_prefix(struct sennit_error *err, const char *fmt, ...)
{
    if (!err)
        return;
    char text[2 * sizeof err->message];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof err->message, fmt, ap);
    va_end(ap);
    if (n < 0)
        return;
    size_t used = strlen(text);
    snprintf(text + used, sizeof text - used, ": %s", err->message);
    bool cut = strlen(text) >= sizeof err->message;
    text[sizeof err->message - 1] = '\0';
    if (cut)
        cut_at_character(text);
    memcpy(err->message, text, sizeof err->message);
}

void sn_log(const struct sennit_logger *log, sennit_log_level level, const char *fmt, ...)
{
    if (!log || !log->fn)
        return;
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    log->fn(log->ctx, level, text);
}
