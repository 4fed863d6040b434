/* Log lines. What comes from a client (method, path, identifiers, error messages that quote it, prompts) is escaped,
 * so that no client can begin a line, end one, add a field, or send a terminal an escape sequence. */
#include "serve/log.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "serve/text.h"

/* A bare field ends at a blank, a quoted one at a quote, plain text at the end of the line. */
enum style { BARE, QUOTED, PLAIN };

/* Most bytes of a field after escaping. They keep a line without a prompt below PIPE_BUF (4096), up to which a write
 * into a pipe is one piece. */
enum { MOST_SHORT = 128, MOST_PATH = 1024, MOST_MESSAGE = 1536, NO_LIMIT = -1 };

static const char *const level_names[] = {"debug", "info", "warn", "error"};

/* ---- text ------------------------------------------------------------------------------------------------------ */

static bool is_tail(unsigned char c)
{
    return (c & 0xc0) == 0x80;
}

/* The character of a valid sequence of len bytes. */
static uint32_t decode(const unsigned char *s, size_t len)
{
    uint32_t code = len == 1 ? s[0] : s[0] & (0x7fu >> len);
    for (size_t i = 1; i < len; i++)
        code = code << 6 | (s[i] & 0x3f);
    return code;
}

/* Characters that move, hide or reorder what a reader sees. */
static bool is_unsafe(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x061c || (c >= 0x200b && c <= 0x200f) ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) || c == 0xfeff;
}

/* Writes one character of a field into out, [16]. */
static size_t escape_char(const unsigned char *s, size_t n, enum style style, char *out, size_t *n_out)
{
    size_t len;
    bool whole = sv_utf8_step((const char *)s, n, &len) == SV_UTF8_OK;
    uint32_t c = whole ? decode(s, len) : 0;
    int w = 0;
    if (!whole)
        w = snprintf(out, 16, "\\x%02x", s[0]);
    else if (c == '\n' || c == '\r' || c == '\t')
        w = snprintf(out, 16, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
    else if (c == '\\' || (style != PLAIN && c == '"'))
        w = snprintf(out, 16, "\\%c", (char)c);
    else if (c < 0x80 && (is_unsafe(c) || (style == BARE && c == ' ')))
        w = snprintf(out, 16, "\\x%02x", (unsigned)c);
    else if (is_unsafe(c))
        w = snprintf(out, 16, "\\u{%x}", (unsigned)c);
    else
        memcpy(out, s, len), w = (int)len;
    *n_out = (size_t)w;
    return whole ? len : 1;
}

/* A field as text: escaped, at most `most` bytes of it (NO_LIMIT: all), "..." where it was cut. Empty bare fields and
 * NULL become "-". */
static void put_text(struct sv_buf *b, const char *text, size_t n, int most, enum style style)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t room = most < 0 ? SIZE_MAX : (size_t)most - 3;
    if (style == BARE && !n)
        sv_buf_puts(b, "-");
    for (size_t i = 0; i < n;) {
        char piece[16];
        size_t n_piece;
        size_t used = escape_char(s + i, n - i, style, piece, &n_piece);
        if (n_piece > room) {
            sv_buf_puts(b, "...");
            return;
        }
        sv_buf_add(b, piece, n_piece);
        room -= n_piece;
        i += used;
    }
}

static void put_bare(struct sv_buf *b, const char *text, int most)
{
    put_text(b, text, text ? strlen(text) : 0, most, BARE);
}

static void put_quoted(struct sv_buf *b, const char *name, const char *text, size_t n, int most)
{
    sv_buf_printf(b, " %s=\"", name);
    put_text(b, text, n, most, QUOTED);
    sv_buf_puts(b, "\"");
}

/* ---- JSON ------------------------------------------------------------------------------------------------------ */

/* How much of the text becomes at most `most` bytes of JSON. */
static size_t json_fits(const char *text, size_t n, size_t most)
{
    size_t i = 0, room = most;
    for (; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        size_t cost = c < 0x20 || c == 0x7f ? 6 : c == '"' || c == '\\' || c == '/' ? 2 : c >= 0x80 ? 3 : 1;
        if (cost > room)
            break;
        room -= cost;
    }
    while (i < n && i > 0 && is_tail((unsigned char)text[i]))
        i--;
    return i;
}

static void put_json(struct sv_buf *b, const char *name, const char *text, size_t n, int most)
{
    sv_buf_printf(b, ",\"%s\":", name);
    if (!text)
        sv_buf_puts(b, "null");
    else
        sv_buf_json_string(b, text, most < 0 ? n : json_fits(text, n, (size_t)most));
}

static void put_json_z(struct sv_buf *b, const char *name, const char *text, int most)
{
    put_json(b, name, text, text ? strlen(text) : 0, most);
}

/* ---- what both have -------------------------------------------------------------------------------------------- */

static void put_time(struct sv_buf *b)
{
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    sv_buf_printf(b, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday,
                  utc.tm_hour, utc.tm_min, utc.tm_sec, (int)(now.tv_nsec / 1000000));
}

/* Milliseconds in digits: %f would follow the locale. Nothing for a time that did not happen. */
static void put_seconds(struct sv_buf *b, const char *before, double s, const char *after)
{
    if (!(s >= 0) || s > 1e12)
        return;
    uint64_t ms = (uint64_t)(s * 1000 + 0.5);
    sv_buf_printf(b, "%s%llu.%03u%s", before, (unsigned long long)(ms / 1000), (unsigned)(ms % 1000), after);
}

/* Lines that nobody read, since the last one that somebody did. */
static atomic_uint n_lost;

/* Waits until a piece of PIPE_BUF bytes can be written without waiting, for a second at most, and not at all behind a
 * line that was lost: a reader that stands still must not hold up the server. */
static bool may_write(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    int n;
    do
        n = poll(&p, 1, atomic_load(&n_lost) ? 0 : 1000);
    while (n < 0 && errno == EINTR);
    return n > 0;
}

/* One write for each line without a prompt, so that the lines of several writers do not mix. */
static void write_line(int fd, struct sv_buf *b)
{
    static const char no_memory[] = "sennit: no memory for a log line\n";
    struct stat st;
    size_t most = fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode) ? PIPE_BUF : SIZE_MAX;
    sv_buf_puts(b, "\n");
    const char *data = b->failed ? no_memory : b->data;
    size_t n = b->failed ? sizeof no_memory - 1 : b->n_bytes;
    while (n > 0) {
        if (!may_write(fd)) {
            atomic_fetch_add(&n_lost, 1);
            break;
        }
        ssize_t done = write(fd, data, n < most ? n : most);
        if (done < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (done < 0)
            break;
        data += done;
        n -= (size_t)done;
    }
    sv_buf_release(b);
}

/* Once there is a reader again, it is told what it missed. */
static void tell_lost(const struct sv_log_options *o)
{
    if (atomic_load(&n_lost) == 0 || !may_write(o->fd))
        return;
    unsigned n = atomic_exchange(&n_lost, 0);
    if (n)
        sv_log_message(o, SENNIT_LOG_WARN, "%u log lines were lost: nobody read them", n);
}

/* ---- lines ----------------------------------------------------------------------------------------------------- */

static void request_text(struct sv_buf *b, const struct sv_log_line *l)
{
    put_time(b);
    if (l->http)
        sv_buf_printf(b, " %d ", l->http);
    else
        sv_buf_puts(b, " - ");
    put_bare(b, l->method, MOST_SHORT);
    sv_buf_puts(b, " ");
    put_bare(b, l->path, MOST_PATH);
    sv_buf_puts(b, " id=");
    put_bare(b, l->id, MOST_SHORT);
    sv_buf_puts(b, " client=");
    put_bare(b, l->client, MOST_SHORT);
    sv_buf_printf(b, " prompt=%llu completion=%llu choices=%u%s finish=", (unsigned long long)l->usage.n_prompt,
                  (unsigned long long)l->usage.n_completion, l->n_choices, l->stream ? " stream" : "");
    put_bare(b, l->finish, MOST_SHORT);
    put_seconds(b, " queue=", l->queue_s, "s");
    put_seconds(b, " first=", l->first_token_s, "s");
    put_seconds(b, " total=", l->total_s, "s");
    if (l->message)
        put_quoted(b, "error", l->message, strlen(l->message), MOST_MESSAGE);
}

static void request_json(struct sv_buf *b, const struct sv_log_line *l)
{
    sv_buf_puts(b, "{\"time\":\"");
    put_time(b);
    sv_buf_puts(b, "\",\"status\":");
    if (l->http)
        sv_buf_printf(b, "%d", l->http);
    else
        sv_buf_puts(b, "null");
    put_json_z(b, "method", l->method, MOST_SHORT);
    put_json_z(b, "path", l->path, MOST_PATH);
    put_json_z(b, "id", l->id && strcmp(l->id, "-") != 0 ? l->id : NULL, MOST_SHORT);
    put_json_z(b, "client", l->client, MOST_SHORT);
    sv_buf_printf(b, ",\"prompt_tokens\":%llu,\"completion_tokens\":%llu,\"choices\":%u,\"stream\":%s",
                  (unsigned long long)l->usage.n_prompt, (unsigned long long)l->usage.n_completion, l->n_choices,
                  l->stream ? "true" : "false");
    put_json_z(b, "finish", l->finish, MOST_SHORT);
    put_seconds(b, ",\"queue_s\":", l->queue_s, "");
    put_seconds(b, ",\"first_token_s\":", l->first_token_s, "");
    put_seconds(b, ",\"total_s\":", l->total_s, "");
    if (l->message)
        put_json_z(b, "error", l->message, MOST_MESSAGE);
}

void sv_log_request(const struct sv_log_options *o, const struct sv_log_line *line)
{
    struct sv_buf b = {0};
    if (o->quiet)
        return;
    tell_lost(o);
    bool prompt = o->prompts && line->prompt;
    if (o->json) {
        request_json(&b, line);
        if (prompt)
            put_json(&b, "prompt_text", line->prompt, line->n_prompt, NO_LIMIT);
        sv_buf_puts(&b, "}");
    } else {
        request_text(&b, line);
        if (prompt)
            put_quoted(&b, "text", line->prompt, line->n_prompt, NO_LIMIT);
    }
    write_line(o->fd, &b);
}

void sv_log_message(const struct sv_log_options *o, sennit_log_level level, const char *fmt, ...)
{
    struct sv_buf b = {0};
    char message[2048];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    const char *name = level_names[(unsigned)level <= SENNIT_LOG_ERROR ? level : SENNIT_LOG_ERROR];
    if (o->json)
        sv_buf_puts(&b, "{\"time\":\"");
    put_time(&b);
    if (o->json) {
        sv_buf_printf(&b, "\",\"level\":\"%s\"", name);
        put_json_z(&b, "message", message, MOST_MESSAGE);
        sv_buf_puts(&b, "}");
    } else {
        sv_buf_printf(&b, " %s ", name);
        put_text(&b, message, strlen(message), MOST_MESSAGE, PLAIN);
    }
    write_line(o->fd, &b);
}
