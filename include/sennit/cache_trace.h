/* A trace of the contract's calls, for debugging: which operations a file of one's own makes on caches, in order,
 * with what came of them. Opt-in for each file, and free where it is not included:
 *
 *     static struct sennit_logger trace = {print_line, NULL};
 *     #define SENNIT_CACHE_TRACE (&trace)
 *     #include "sennit/cache_trace.h"
 *
 * From there on every call below logs one message at SENNIT_LOG_DEBUG once it is done: the call as it is written,
 * then the rows' lengths and the bytes that they hold alone (sennit_cache_current_bytes), or why it was refused:
 *
 *     merge_rows(batch, list, 2, &err): 2 rows, 4096 17 tokens; 0 bytes of their own
 *     append_begin(batch, spans, 2, 9, &err): row 0 + 1, row 1 + 128
 *     trim(batch, n, false, &err): range: trim: row 1 has 17 tokens and floor 0; 18 cannot be dropped
 *
 * SENNIT_CACHE_TRACE is an expression, looked at in every call; NULL is silence. Results never depend on it.
 * Questions, tiles, items and merges are not traced: they change no row, and come by the thousand. */
#ifndef SENNIT_CACHE_TRACE_H
#define SENNIT_CACHE_TRACE_H

#include "sennit/cache.h"

#ifndef SENNIT_CACHE_TRACE
#define SENNIT_CACHE_TRACE NULL
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* One message about a call that has been made, on `cache` (NULL: nothing is said of it); returns status. `call` ends
 * before the colon. err: of the call, or NULL. Owner's thread. */
SENNIT_API sennit_status sennit_cache_traced(const struct sennit_logger *log, const char *call,
                                             const struct sennit_cache *cache, sennit_status status,
                                             const struct sennit_error *err);
/* The same of an opened step, whose rows have their old lengths still. */
SENNIT_API sennit_status sennit_cache_traced_step(const struct sennit_logger *log, const char *call,
                                                  const struct sennit_span *spans, uint32_t n_spans,
                                                  sennit_status status, const struct sennit_error *err);

#ifdef __cplusplus
}
#endif

/* ---- what makes a cache: its state is the new one's -------------------------------------------------------- */

static inline sennit_status sennit_traced_create(const struct sennit_logger *log, const char *call,
                                                 struct sennit_cache **out, struct sennit_pool *pool,
                                                 const struct sennit_cache_config *config, uint32_t n_rows,
                                                 struct sennit_error *err)
{
    sennit_status status = sennit_cache_create(out, pool, config, n_rows, err);
    return sennit_cache_traced(log, call, status == SENNIT_OK ? *out : NULL, status, err);
}
static inline sennit_status sennit_traced_make_empty_batch(const struct sennit_logger *log, const char *call,
                                                           const struct sennit_cache *cache,
                                                           struct sennit_cache **out, struct sennit_error *err)
{
    sennit_status status = sennit_cache_make_empty_batch(cache, out, err);
    return sennit_cache_traced(log, call, status == SENNIT_OK ? *out : NULL, status, err);
}
static inline sennit_status sennit_traced_extract_row(const struct sennit_logger *log, const char *call,
                                                      const struct sennit_cache *cache, uint32_t row,
                                                      struct sennit_cache **out, struct sennit_error *err)
{
    sennit_status status = sennit_cache_extract_row(cache, row, out, err);
    return sennit_cache_traced(log, call, status == SENNIT_OK ? *out : NULL, status, err);
}
static inline sennit_status sennit_traced_clone(const struct sennit_logger *log, const char *call,
                                                const struct sennit_cache *cache, uint32_t row,
                                                struct sennit_cache **out, struct sennit_error *err)
{
    sennit_status status = sennit_cache_clone(cache, row, out, err);
    return sennit_cache_traced(log, call, status == SENNIT_OK ? *out : NULL, status, err);
}
static inline sennit_status sennit_traced_load(const struct sennit_logger *log, const char *call,
                                               const struct sennit_cache *like, struct sennit_stream *stream,
                                               struct sennit_cache **out, struct sennit_error *err)
{
    sennit_status status = sennit_cache_load(like, stream, out, err);
    return sennit_cache_traced(log, call, status == SENNIT_OK ? *out : NULL, status, err);
}
/* The last state is said, for afterwards there is none. */
static inline void sennit_traced_dispose(const struct sennit_logger *log, const char *call,
                                         struct sennit_cache **cache)
{
    sennit_cache_traced(log, call, cache ? *cache : NULL, SENNIT_OK, NULL);
    sennit_cache_dispose(cache);
}

/* ---- what changes one -------------------------------------------------------------------------------------- */

static inline sennit_status sennit_traced_merge_rows(const struct sennit_logger *log, const char *call,
                                                     struct sennit_cache *cache,
                                                     const struct sennit_cache *const *sources, uint32_t n_sources,
                                                     struct sennit_error *err)
{
    return sennit_cache_traced(log, call, cache, sennit_cache_merge_rows(cache, sources, n_sources, err), err);
}
static inline sennit_status sennit_traced_filter_rows(const struct sennit_logger *log, const char *call,
                                                      struct sennit_cache *cache, const uint32_t *keep,
                                                      uint32_t n_keep, struct sennit_error *err)
{
    return sennit_cache_traced(log, call, cache, sennit_cache_filter_rows(cache, keep, n_keep, err), err);
}
static inline sennit_status sennit_traced_trim(const struct sennit_logger *log, const char *call,
                                               struct sennit_cache *cache, uint64_t n, bool bypass,
                                               struct sennit_error *err)
{
    return sennit_cache_traced(log, call, cache, sennit_cache_trim(cache, n, bypass, err), err);
}
static inline sennit_status sennit_traced_spec_round_begin(const struct sennit_logger *log, const char *call,
                                                           struct sennit_cache *cache, struct sennit_error *err)
{
    return sennit_cache_traced(log, call, cache, sennit_cache_spec_round_begin(cache, err), err);
}
static inline sennit_status sennit_traced_spec_round_commit(const struct sennit_logger *log, const char *call,
                                                            struct sennit_cache *cache, struct sennit_error *err)
{
    return sennit_cache_traced(log, call, cache, sennit_cache_spec_round_commit(cache, err), err);
}
static inline sennit_status sennit_traced_spec_round_rollback(const struct sennit_logger *log, const char *call,
                                                              struct sennit_cache *cache, const uint64_t *keep,
                                                              struct sennit_error *err)
{
    return sennit_cache_traced(log, call, cache, sennit_cache_spec_round_rollback(cache, keep, err), err);
}
static inline sennit_status sennit_traced_begin_prefill(const struct sennit_logger *log, const char *call,
                                                        struct sennit_cache *cache, struct sennit_error *err)
{
    return sennit_cache_traced(log, call, cache, sennit_cache_begin_prefill(cache, err), err);
}
static inline sennit_status sennit_traced_commit_prefill(const struct sennit_logger *log, const char *call,
                                                         struct sennit_cache *cache, const uint32_t *rows,
                                                         uint32_t n_rows, struct sennit_error *err)
{
    return sennit_cache_traced(log, call, cache, sennit_cache_commit_prefill(cache, rows, n_rows, err), err);
}
static inline sennit_status sennit_traced_end_prefill(const struct sennit_logger *log, const char *call,
                                                      struct sennit_cache *cache, struct sennit_error *err)
{
    return sennit_cache_traced(log, call, cache, sennit_cache_end_prefill(cache, err), err);
}

/* ---- what leaves it as it is ------------------------------------------------------------------------------- */

static inline sennit_status sennit_traced_capture_donor_rows(const struct sennit_logger *log, const char *call,
                                                             const struct sennit_cache *cache,
                                                             struct sennit_donor **out, struct sennit_error *err)
{
    return sennit_cache_traced(log, call, cache, sennit_cache_capture_donor_rows(cache, out, err), err);
}
static inline sennit_status sennit_traced_capture_donor_attention(const struct sennit_logger *log, const char *call,
                                                                  const struct sennit_cache *cache,
                                                                  struct sennit_donor_attention **out,
                                                                  struct sennit_error *err)
{
    return sennit_cache_traced(log, call, cache, sennit_cache_capture_donor_attention(cache, out, err), err);
}
static inline sennit_status sennit_traced_save(const struct sennit_logger *log, const char *call,
                                               const struct sennit_cache *cache, uint32_t row,
                                               struct sennit_stream *stream, struct sennit_error *err)
{
    return sennit_cache_traced(log, call, cache, sennit_cache_save(cache, row, stream, err), err);
}

/* ---- the step ---------------------------------------------------------------------------------------------- */

static inline sennit_status sennit_traced_append_begin(const struct sennit_logger *log, const char *call,
                                                       struct sennit_cache *cache, const struct sennit_span *spans,
                                                       uint32_t n_spans, uint32_t n_heads, struct sennit_error *err)
{
    sennit_status status = sennit_cache_append_begin(cache, spans, n_spans, n_heads, err);
    return sennit_cache_traced_step(log, call, spans, n_spans, status, err);
}
static inline sennit_status sennit_traced_append_begin_parts(const struct sennit_logger *log, const char *call,
                                                             struct sennit_cache *cache,
                                                             const struct sennit_span *spans, uint32_t n_spans,
                                                             const uint32_t *n_heads, uint32_t n_parts,
                                                             struct sennit_error *err)
{
    sennit_status status = sennit_cache_append_begin_parts(cache, spans, n_spans, n_heads, n_parts, err);
    return sennit_cache_traced_step(log, call, spans, n_spans, status, err);
}
static inline void sennit_traced_append_commit(const struct sennit_logger *log, const char *call,
                                               struct sennit_cache *cache)
{
    sennit_cache_append_commit(cache);
    sennit_cache_traced(log, call, cache, SENNIT_OK, NULL);
}
static inline void sennit_traced_append_abort(const struct sennit_logger *log, const char *call,
                                              struct sennit_cache *cache)
{
    sennit_cache_append_abort(cache);
    sennit_cache_traced(log, call, cache, SENNIT_OK, NULL);
}

#define SENNIT_TRACED(name, args, ...) sennit_traced_##name(SENNIT_CACHE_TRACE, #name "(" args ")", __VA_ARGS__)

#define sennit_cache_create(...) SENNIT_TRACED(create, #__VA_ARGS__, __VA_ARGS__)
#define sennit_cache_make_empty_batch(...) SENNIT_TRACED(make_empty_batch, #__VA_ARGS__, __VA_ARGS__)
#define sennit_cache_extract_row(...) SENNIT_TRACED(extract_row, #__VA_ARGS__, __VA_ARGS__)
#define sennit_cache_clone(...) SENNIT_TRACED(clone, #__VA_ARGS__, __VA_ARGS__)
#define sennit_cache_load(...) SENNIT_TRACED(load, #__VA_ARGS__, __VA_ARGS__)
#define sennit_cache_dispose(...) SENNIT_TRACED(dispose, #__VA_ARGS__, __VA_ARGS__)
#define sennit_cache_merge_rows(...) SENNIT_TRACED(merge_rows, #__VA_ARGS__, __VA_ARGS__)
#define sennit_cache_filter_rows(...) SENNIT_TRACED(filter_rows, #__VA_ARGS__, __VA_ARGS__)
#define sennit_cache_trim(...) SENNIT_TRACED(trim, #__VA_ARGS__, __VA_ARGS__)
#define sennit_cache_spec_round_begin(...) SENNIT_TRACED(spec_round_begin, #__VA_ARGS__, __VA_ARGS__)
#define sennit_cache_spec_round_commit(...) SENNIT_TRACED(spec_round_commit, #__VA_ARGS__, __VA_ARGS__)
#define sennit_cache_spec_round_rollback(...) SENNIT_TRACED(spec_round_rollback, #__VA_ARGS__, __VA_ARGS__)
#define sennit_cache_begin_prefill(...) SENNIT_TRACED(begin_prefill, #__VA_ARGS__, __VA_ARGS__)
#define sennit_cache_commit_prefill(...) SENNIT_TRACED(commit_prefill, #__VA_ARGS__, __VA_ARGS__)
#define sennit_cache_end_prefill(...) SENNIT_TRACED(end_prefill, #__VA_ARGS__, __VA_ARGS__)
#define sennit_cache_capture_donor_rows(...) SENNIT_TRACED(capture_donor_rows, #__VA_ARGS__, __VA_ARGS__)
#define sennit_cache_capture_donor_attention(...) SENNIT_TRACED(capture_donor_attention, #__VA_ARGS__, __VA_ARGS__)
#define sennit_cache_save(...) SENNIT_TRACED(save, #__VA_ARGS__, __VA_ARGS__)
#define sennit_cache_append_begin(...) SENNIT_TRACED(append_begin, #__VA_ARGS__, __VA_ARGS__)
#define sennit_cache_append_begin_parts(...) SENNIT_TRACED(append_begin_parts, #__VA_ARGS__, __VA_ARGS__)
#define sennit_cache_append_commit(...) SENNIT_TRACED(append_commit, #__VA_ARGS__, __VA_ARGS__)
#define sennit_cache_append_abort(...) SENNIT_TRACED(append_abort, #__VA_ARGS__, __VA_ARGS__)

#endif
