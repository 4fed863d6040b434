#include "cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- messages -------------------------------------------------------------------------------- */

/* Bytes of a control character at s other than newline and tab, 0 for anything else: it would give
 * a terminal orders. U+0080 to U+009F are two bytes. */
static size_t control_bytes(const char *s, size_t n)
{
    unsigned char c = (unsigned char)s[0], next = n > 1 ? (unsigned char)s[1] : 0;
    if (c == 0xC2 && next >= 0x80 && next <= 0x9F)
        return 2;
    return (c < 0x20 && c != '\n' && c != '\t') || c == 0x7F;
}

/* Messages name things that come out of files. */
static void say(const char *prefix, const char *fmt, va_list args)
{
    char text[8192];
    int n = vsnprintf(text, sizeof text, fmt, args);
    size_t len = n < 0 ? 0 : (size_t)n < sizeof text ? (size_t)n : sizeof text - 1;
    fflush(stdout); /* keeps answers and messages in order on a terminal */
    fputs(prefix, stderr);
    for (size_t i = 0, skip; i < len; i += skip ? skip : 1) {
        skip = control_bytes(text + i, len - i);
        fputc(skip ? '?' : text[i], stderr);
    }
    fputc('\n', stderr);
}

void cli_error(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    say("sennit: ", fmt, args);
    va_end(args);
}

void cli_warn(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    say("sennit: warning: ", fmt, args);
    va_end(args);
}

void cli_hint(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    say("  hint: ", fmt, args);
    va_end(args);
}

int cli_exit_code(sennit_status status)
{
    switch (status) {
    case SENNIT_OK:
        return CLI_OK;
    case SENNIT_INVALID:
        return CLI_USAGE;
    case SENNIT_IO:
    case SENNIT_FORMAT:
    case SENNIT_UNSUPPORTED:
    case SENNIT_NOT_FOUND:
        return CLI_FILE;
    case SENNIT_RANGE:
    case SENNIT_TOO_BIG:
        return CLI_REFUSED;
    case SENNIT_STATE:
    case SENNIT_NOMEM:
    case SENNIT_NUMERIC:
    case SENNIT_INTERNAL:
    case SENNIT_BUSY:
        break;
    }
    return CLI_FAILED;
}

int cli_fail(const struct sennit_error *err)
{
    cli_error("%s", err->message[0] ? err->message : sennit_status_name(err->code));
    return cli_exit_code(err->code);
}

void cli_note(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    say("", fmt, args);
    va_end(args);
}

/* ---- memory and text
 * ------------------------------------------------------------------------------------------ */

static _Noreturn void out_of_memory(size_t n_bytes)
{
    cli_error("out of memory (%zu bytes were asked for)", n_bytes);
    exit(CLI_FAILED);
}

void *cli_alloc(size_t n_bytes)
{
    void *p = calloc(1, n_bytes ? n_bytes : 1);
    if (!p)
        out_of_memory(n_bytes);
    return p;
}

void *cli_realloc(void *ptr, size_t n_bytes)
{
    void *p = realloc(ptr, n_bytes ? n_bytes : 1);
    if (!p)
        out_of_memory(n_bytes);
    return p;
}

void cli_text_add(struct cli_text *t, const char *data, size_t n_bytes)
{
    if (t->n_bytes + n_bytes + 1 > t->cap) {
        t->cap = (t->n_bytes + n_bytes + 1) * 2;
        t->data = cli_realloc(t->data, t->cap);
    }
    if (n_bytes)
        memcpy(t->data + t->n_bytes, data, n_bytes);
    t->n_bytes += n_bytes;
    t->data[t->n_bytes] = '\0';
}

void cli_text_free(struct cli_text *t)
{
    free(t->data);
    *t = (struct cli_text){0};
}

/* Length of the valid character at s, or 0 with *bad = length of the longest start of a valid one
 * (at least 1). */
static size_t utf8_char(const unsigned char *s, size_t n, size_t *bad)
{
    unsigned char lo = 0x80, hi = 0xBF;
    size_t len;
    *bad = 1;
    if (s[0] < 0x80)
        return 1;
    if (s[0] >= 0xC2 && s[0] <= 0xDF)
        len = 2;
    else if (s[0] >= 0xE0 && s[0] <= 0xEF)
        len = 3;
    else if (s[0] >= 0xF0 && s[0] <= 0xF4)
        len = 4;
    else
        return 0;
    if (s[0] == 0xE0)
        lo = 0xA0;
    else if (s[0] == 0xED)
        hi = 0x9F;
    else if (s[0] == 0xF0)
        lo = 0x90;
    else if (s[0] == 0xF4)
        hi = 0x8F;
    for (size_t i = 1; i < len; i++) {
        if (i >= n || s[i] < lo || s[i] > hi) {
            *bad = i;
            return 0;
        }
        lo = 0x80;
        hi = 0xBF;
    }
    return len;
}

void cli_text_add_utf8(struct cli_text *t, const char *data, size_t n_bytes)
{
    const unsigned char *s = (const unsigned char *)data;
    size_t from = 0, i = 0;
    while (i < n_bytes) {
        size_t bad, n = utf8_char(s + i, n_bytes - i, &bad);
        if (n) {
            i += n;
            continue;
        }
        cli_text_add(t, data + from, i - from);
        cli_text_add(t, "\xEF\xBF\xBD", 3);
        i += bad;
        from = i;
    }
    cli_text_add(t, data + from, n_bytes - from);
}

void cli_print_text(const char *data, size_t n_bytes)
{
    static int terminal = -1;
    if (terminal < 0)
        terminal = isatty(STDOUT_FILENO);
    if (!terminal) {
        fwrite(data, 1, n_bytes, stdout);
    } else {
        for (size_t i = 0, skip; i < n_bytes; i += skip ? skip : 1) {
            skip = control_bytes(data + i, n_bytes - i);
            if (!skip)
                putchar((unsigned char)data[i]);
        }
    }
    fflush(stdout);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

int cli_print_json(json_t *value)
{
    int failed = !value || json_dumpf(value, stdout, JSON_COMPACT) != 0 || putchar('\n') == EOF ||
                 fflush(stdout) != 0;
    json_decref(value);
    if (failed) {
        cli_error("cannot write to standard output: %s", strerror(errno));
        return CLI_FAILED;
    }
    return CLI_OK;
}

json_t *cli_json_text(const char *data, size_t n_bytes)
{
    json_t *v = json_stringn(data ? data : "", n_bytes);
    if (v)
        return v;
    struct cli_text fixed = {0}; /* jansson takes valid UTF-8 only */
    cli_text_add_utf8(&fixed, data, n_bytes);
    v = json_stringn(fixed.data, fixed.n_bytes);
    cli_text_free(&fixed);
    return v;
}

json_t *cli_json_ids(const int32_t *ids, size_t n)
{
    json_t *a = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(a, json_integer(ids[i]));
    return a;
}

/* JSON integers are signed here; byte counts stay far below that, "no limit" becomes null. */
json_t *cli_json_u64(uint64_t value)
{
    return value > INT64_MAX ? json_null() : json_integer((json_int_t)value);
}

static json_t *kernel_json(const struct sennit_kernel_use *use, uint32_t n_threads)
{
    json_t *o = json_object(), *calls = json_array();
    json_object_set_new(o, "kernel", json_string(use->kernel));
    json_object_set_new(o, "variant", json_string(use->variant));
    for (uint32_t t = 0; t < n_threads; t++)
        json_array_append_new(calls, cli_json_u64(use->calls[t]));
    json_object_set_new(o, "calls", calls);
    return o;
}

static json_t *cache_json(const struct sennit_stats *s)
{
    json_t *o = json_object();
    json_object_set_new(o, "family", json_string(s->cache_family));
    json_object_set_new(o, "type", json_string(s->kv_type));
    json_object_set_new(o, "bytes_per_token", cli_json_u64(s->cache_bytes_per_token));
    json_object_set_new(o, "budget", cli_json_u64(s->cache_budget));
    json_object_set_new(o, "bytes", cli_json_u64(s->cache_bytes));
    return o;
}

json_t *cli_json_in_force(const struct sennit_stats *s)
{
    json_t *o = json_object(), *kernels = json_array();
    json_object_set_new(o, "version", json_string(sennit_version()));
    json_object_set_new(o, "numerics", json_integer(SENNIT_NUMERICS));
    json_object_set_new(o, "isa", json_string(s->isa));
    json_object_set_new(o, "threads", json_integer(s->n_threads));
    json_object_set_new(o, "chunk", json_integer(s->chunk));
    json_object_set_new(o, "max_rows", json_integer(s->max_rows));
    json_object_set_new(o, "step_tokens", json_integer(s->step_tokens));
    json_object_set_new(o, "cache", cache_json(s));
    for (uint32_t i = 0; i < s->n_kernels; i++)
        json_array_append_new(kernels, kernel_json(&s->kernels[i], s->n_threads));
    json_object_set_new(o, "kernels", kernels);
    json_object_set_new(o, "steps", cli_json_u64(s->n_steps));
    json_object_set_new(o, "decode_steps", cli_json_u64(s->n_decode_steps));
    json_object_set_new(o, "spans", cli_json_u64(s->n_spans));
    json_object_set_new(o, "tokens", cli_json_u64(s->n_tokens));
    json_object_set_new(o, "logit_rows", cli_json_u64(s->n_logit_rows));
    json_object_set_new(o, "most_rows_in_step", json_integer(s->most_rows_in_step));
    json_object_set_new(o, "weight_bytes_read", cli_json_u64(s->weight_bytes_read));
    json_object_set_new(o, "heap_bytes", cli_json_u64(s->heap_bytes));
    json_object_set_new(o, "heap_peak", cli_json_u64(s->heap_peak));
    return o;
}

json_t *cli_json_model(const char *path, const struct sennit_model_info *info)
{
    char hash[24];
    json_t *o = json_object();
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)info->content_hash);
    json_object_set_new(o, "file", cli_json_text(path, strlen(path)));
    json_object_set_new(o, "architecture",
                        cli_json_text(info->architecture, strlen(info->architecture)));
    json_object_set_new(o, "name", cli_json_text(info->name, strlen(info->name)));
    json_object_set_new(o, "content_hash", json_string(hash));
    json_object_set_new(o, "context", cli_json_u64(info->context_length));
    json_object_set_new(o, "weight_bytes", cli_json_u64(info->weight_bytes));
    json_object_set_new(o, "step_weight_bytes", cli_json_u64(info->step_weight_bytes));
    return o;
}

/* ---- time and signals
 * ------------------------------------------------------------------------------------------- */

double cli_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

volatile sig_atomic_t cli_interrupts;

static void on_interrupt(int signal)
{
    (void)signal;
    cli_interrupts++;
    if (cli_interrupts >= 3)
        _exit(CLI_INTERRUPTED); /* a step that takes for ever must not lock anybody in */
}

void cli_catch_interrupt(void)
{
    struct sigaction action = {.sa_handler =
                                   on_interrupt}; /* no SA_RESTART: a read of a line returns */
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
}
