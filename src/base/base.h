/* Internal base: errors, heap with accounting, checked arithmetic. Every room may include this one. */
#ifndef SN_BASE_H
#define SN_BASE_H

#include <float.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>

#include "sennit/base.h"

#if defined(FLT_EVAL_METHOD) && FLT_EVAL_METHOD != 0
#error "Sennit needs FLT_EVAL_METHOD == 0 (no extended-precision intermediates); on x86-32 build with -mfpmath=sse"
#endif
#if defined(__arm__) && !defined(__aarch64__)
#error "32-bit ARM is not supported: its vector unit flushes denormals, so results would differ"
#endif

/* Fills *err (when not NULL) and returns `status`, so that `return sn_fail(...)` reads as one thought. */
sennit_status sn_fail(struct sennit_error *err, sennit_status status, const char *fmt, ...) SENNIT_PRINTF(3, 4);

/* Puts "prefix: " before the message of an error that is already set. */
void sn_error_prefix(struct sennit_error *err, const char *fmt, ...) SENNIT_PRINTF(2, 3);

#define SN_TRY(expr)                                                                                                 \
    do {                                                                                                             \
        sennit_status sn_try_status_ = (expr);                                                                       \
        if (sn_try_status_ != SENNIT_OK)                                                                             \
            return sn_try_status_;                                                                                   \
    } while (0)

#define SN_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

static inline size_t sn_min_size(size_t a, size_t b) { return a < b ? a : b; }
static inline size_t sn_max_size(size_t a, size_t b) { return a > b ? a : b; }
static inline size_t sn_div_up(size_t a, size_t b) { return a / b + (a % b != 0); }
static inline size_t sn_round_up(size_t a, size_t b) { return sn_div_up(a, b) * b; }

/* True when the product or sum does not fit; *out is then undefined. */
static inline bool sn_mul_overflows(size_t a, size_t b, size_t *out) { return __builtin_mul_overflow(a, b, out); }
static inline bool sn_add_overflows(size_t a, size_t b, size_t *out) { return __builtin_add_overflow(a, b, out); }
static inline uint64_t sn_add_saturated(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

/* ---- heap ---------------------------------------------------------------------------------------------------- */

/* What memory is for. Each allocation is charged to one use; sn_heap_used() answers per use. */
enum sn_use { SN_USE_MISC, SN_USE_WEIGHTS, SN_USE_CACHE, SN_USE_SCRATCH, SN_USE_TEXT, SN_USE_COUNT };

/* The one allocator, with accounting. Thread-safe: counters are atomic.
 * Invariant: used[u] is the sum of the sizes of the live blocks of use u, as the callers asked for them. */
struct sn_heap {
    struct sennit_allocator host;
    _Atomic size_t used[SN_USE_COUNT];
    _Atomic size_t total, peak;    /* bytes now, and the most at any moment */
    _Atomic uint64_t n_calls;      /* allocations and growths tried so far (frees are not counted) */
    _Atomic uint64_t fail_at; /* the call number that fails (1 = the next one after arming at 0 calls); 0 = none */
    _Atomic size_t limit;          /* growth beyond this many bytes fails; 0 = none */
};

void sn_heap_init(struct sn_heap *heap, const struct sennit_allocator *host); /* host NULL = default */
/* Makes the n-th allocation from now (1 = the next) fail once. 0 disarms. For tests. */
void sn_heap_fail_at(struct sn_heap *heap, uint64_t n);
/* True when a fail-at hook has fired since it was armed. */
bool sn_heap_failed(const struct sn_heap *heap);

/* All return memory aligned to 64 bytes; NULL on failure, and NULL for size 0 (which is not a failure). */
void *sn_alloc(struct sn_heap *heap, enum sn_use use, size_t n_bytes);
void *sn_calloc(struct sn_heap *heap, enum sn_use use, size_t n, size_t size);        /* zeroed, overflow-checked */
void *sn_realloc(struct sn_heap *heap, enum sn_use use, void *ptr, size_t old_bytes, size_t new_bytes);
void sn_free(struct sn_heap *heap, enum sn_use use, void *ptr, size_t n_bytes);       /* NULL is fine */
char *sn_strndup(struct sn_heap *heap, enum sn_use use, const char *s, size_t n); /* n + 1 bytes, NUL at the end */

/* A growable byte buffer with a mandatory maximum. data is NUL-terminated once anything was appended. */
struct sn_buf {
    struct sn_heap *heap;
    enum sn_use use;
    char *data;
    size_t len, cap, max;
};
void sn_buf_init(struct sn_buf *b, struct sn_heap *heap, enum sn_use use, size_t max);
sennit_status sn_buf_append(struct sn_buf *b, const void *data, size_t n); /* OK, NOMEM, or TOO_BIG past max */
sennit_status sn_buf_printf(struct sn_buf *b, const char *fmt, ...) SENNIT_PRINTF(2, 3);
void sn_buf_free(struct sn_buf *b);

/* ---- log ----------------------------------------------------------------------------------------------------- */
void sn_log(const struct sennit_logger *log, sennit_log_level level, const char *fmt, ...) SENNIT_PRINTF(3, 4);

#endif
