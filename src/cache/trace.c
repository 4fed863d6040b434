/* The messages of sennit/cache_trace.h. Built from the contract's questions alone. */
#include <stdarg.h>
#include <stdio.h>

#include "base/base.h"
#include "sennit/cache_trace.h"

enum { MAX_TEXT = 400 }; /* lists of rows are cut there: the whole message fits a log's line */

struct line {
    char text[MAX_TEXT];
    size_t n;
};

static void add(struct line *l, const char *fmt, ...) SENNIT_PRINTF(2, 3);
static void add(struct line *l, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(l->text + l->n, sizeof l->text - l->n, fmt, ap);
    va_end(ap);
    if (n > 0)
        l->n = sn_min_size(l->n + (size_t)n, sizeof l->text - 1);
}

/* Room for one more entry of a list and what follows it. */
static bool room(const struct line *l)
{
    return l->n + 96 < sizeof l->text;
}

static sennit_status say(const struct sennit_logger *log, const char *call, const struct line *l,
                         sennit_status status, const struct sennit_error *err)
{
    if (status == SENNIT_OK)
        sn_log(log, SENNIT_LOG_DEBUG, "%.300s: %s", call, l->text);
    else
        sn_log(log, SENNIT_LOG_DEBUG, "%.300s: %s: %s", call, sennit_status_name(status),
               err ? err->message : "the call was given no place for a reason");
    return status;
}

static void add_rows(struct line *l, const struct sennit_cache *cache)
{
    uint32_t n = sennit_cache_batch_size(cache), i = 0;
    uint64_t bytes = 0;
    add(l, "%u row%s%s", n, n == 1 ? "" : "s", n > 0 ? "," : "");
    for (; i < n && room(l); i++)
        add(l, " %llu", (unsigned long long)sennit_cache_row_offset(cache, i));
    if (n > 0)
        add(l, "%s tokens", i < n ? " ..." : "");
    for (i = 0; i < n; i++)
        bytes += sennit_cache_current_bytes(cache, i);
    add(l, "; %llu bytes of their own", (unsigned long long)bytes);
}

sennit_status sennit_cache_traced(const struct sennit_logger *log, const char *call, const struct sennit_cache *cache,
                                  sennit_status status, const struct sennit_error *err)
{
    struct line l = {.n = 0};
    if (!log || !log->fn)
        return status;
    if (cache)
        add_rows(&l, cache);
    else
        add(&l, "no cache");
    return say(log, call, &l, status, err);
}

sennit_status sennit_cache_traced_step(const struct sennit_logger *log, const char *call,
                                       const struct sennit_span *spans, uint32_t n_spans, sennit_status status,
                                       const struct sennit_error *err)
{
    struct line l = {.n = 0};
    uint32_t i = 0;
    if (!log || !log->fn)
        return status;
    for (; i < n_spans && status == SENNIT_OK && room(&l); i++)
        add(&l, "%srow %u + %u", i > 0 ? ", " : "", spans[i].row, spans[i].n_tokens);
    if (i < n_spans)
        add(&l, ", ...");
    return say(log, call, &l, status, err);
}
